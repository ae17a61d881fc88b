"""A phase tells its method where in the epoch a step stands, also after it was stopped and resumed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.engine.train import PhaseRun, Place
from clare.methods.linear import Linear, LinearSettings
from clare.steps import Group, Learning, Phase, Sgd, TaskInfo


class Placed(Linear):
    """Notes the position that its loss finds at every step."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone, LinearSettings(), 0)
        self.position = torch.full((), 7.0)
        self.found: list[float] = []

    def phase_of(self, batch_size: int) -> Phase:
        """Return three epochs with the position."""
        groups = [Group(self.head.block)]
        return Phase("train", 3, groups, self.loss, Sgd(0.01), batch_size, position=self.position)

    def learn(self, task: TaskInfo) -> Learning:
        """Train the rows."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        yield self.phase_of(10)
        yield from self.head.finish(len(task.classes))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Note the position."""
        self.found.append(float(self.position))
        return super().loss(images, labels)


def test_a_loss_finds_the_position_of_its_step(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    method = Placed(tiny_backbone())
    learn_task(context(), method, tiny_stream().tasks[0])
    # Two dozen images in batches of ten are three steps.
    assert method.found == pytest.approx([0, 0.5, 1] * 3)


def test_a_phase_that_goes_on_counts_from_the_start_of_its_epoch(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    method, images = Placed(tiny_backbone()), tiny_stream().tasks[0].train
    method.head.open_block(2, torch.Generator().manual_seed(0))
    place = method.position.data_ptr()
    PhaseRun(context(), method, method.phase_of(30), images, Place(0, 0)).run(1, lambda epoch, tensors: None)
    # An epoch of one step is over with it and has not gone on when it begins.
    assert method.found == [0, 0]
    # In place, where a recorded step reads it.
    assert method.position.data_ptr() == place


class Remarking(Placed):
    """Remarks on every image by its brightness, half of them in the second of two phases."""

    def learn(self, task: TaskInfo) -> Learning:
        """Train twice, and keep what comes back."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        phase = replace(self.phase_of(10), remarks=True, loss=self.remarked, progress=self.position, position=None)
        self.remarks = (yield phase)["remarks"]
        self.later = (yield replace(phase, places=torch.arange(0, 24, 2)))["remarks"]
        yield from self.head.finish(len(task.classes))

    def remarked(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the brightness of each image."""
        return self.loss(images, labels), images.flatten(1).mean(1)


def test_what_a_loss_remarks_on_each_image_comes_back_in_order(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    method, run, task = Remarking(tiny_backbone()), context(), tiny_stream().tasks[0]
    learn_task(run, method, task)
    canvas, _ = task.train.batch(torch.arange(24))
    expected = run.transforms.test(canvas).flatten(1).mean(1)
    torch.testing.assert_close(method.remarks, expected.expand(3, -1))
    torch.testing.assert_close(method.later, expected[::2].expand(3, -1))
    # Two phases of three epochs, of three steps and of two.
    assert method.found == pytest.approx([*(step / 8 for step in range(9)), *(step / 5 for step in range(6))])


def test_remarks_survive_a_stop_in_the_middle_and_after_the_end(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    task, kept = tiny_stream().tasks[0], []

    class Kept(Journal):
        """Remembers the second epoch of the first phase, and all that is finished."""

        def __init__(self) -> None:
            self.steps: dict[int, dict[str, Tensor]] = {}
            self.middle: tuple[int, dict[str, Tensor]] | None = None

        def finished(self, step: int) -> dict[str, Tensor] | None:
            return self.steps.get(step)

        def finish(self, step: int, tensors: dict[str, Tensor]) -> None:
            self.steps[step] = {name: tensor.clone() for name, tensor in tensors.items()}

        def epoch(self, step: int) -> tuple[int, dict[str, Tensor]] | None:
            return self.middle if step == 0 else None

        def save_epoch(self, step: int, epoch: int, tensors: dict[str, Tensor]) -> None:
            if step == 0:
                self.middle = (epoch, {name: tensor.clone() for name, tensor in tensors.items()})

    journal = Kept()
    for _ in range(3):
        method = Remarking(tiny_backbone())
        learn_task(context(), method, task, journal)
        kept.append(method.remarks)
        # Then from the last epoch on, and at last from what is finished alone.
        journal.steps = {} if len(kept) == 1 else journal.steps
    assert torch.equal(kept[0], kept[1])
    assert torch.equal(kept[0], kept[2])
