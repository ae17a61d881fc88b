"""A phase tells its method where in the epoch a step stands, also after it was stopped and resumed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
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
