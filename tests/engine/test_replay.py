"""Kept pictures on their way into a step, and steps that follow a corrected gradient."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.engine.replay import ReplaySource, stored, take_pictures
from clare.engine.step import TrainStep
from clare.errors import ModelError
from clare.methods.er import ErSettings, ExperienceReplay
from clare.methods.simplecil import SimpleCil, SimpleCilSettings
from clare.steps import Correction, Group, Learning, Pass, Phase, Pictures, Replay, Sgd, Take, TaskInfo


def bright(levels: list[int]) -> Pictures:
    """Return pictures each of which has one level everywhere."""
    pixels = torch.tensor(levels, dtype=torch.uint8)[:, None].expand(-1, 28 * 28)
    return Pictures(pixels.reshape(-1), torch.tensor([[28, 28]] * len(levels)), 1)


def levels_of(images: Tensor) -> list[int]:
    """Return the level that each image has everywhere."""
    return ((images.flatten(1).mean(1) * 0.5 + 0.5) * 255).round().long().tolist()


def own_images(number: int) -> LabelledImages:
    """Return a task's images, whose levels are their places."""
    array = np.broadcast_to(np.arange(number, dtype=np.uint8)[:, None, None, None], (number, 1, 28, 28))
    return LabelledImages(ImageStore.from_array(array.copy()), torch.arange(number), torch.arange(number) % 2)


def test_each_image_has_one_picture_of_every_pool_beside_it(context: Callable[..., Context]) -> None:
    replay = Replay(bright([100, 101, 102, 200, 201]), torch.arange(5) + 50, (torch.arange(3), torch.tensor([3, 4])))
    source = ReplaySource(context(), own_images(20), replay)
    assert source.num_samples == 20
    seen = set()
    for epoch in range(2):
        source.begin_epoch(torch.Generator().manual_seed(epoch))
        inputs, labels = source.draw(torch.tensor([3, 17, 3]))
        assert inputs.shape == (3, 3, 1, 28, 28)
        assert levels_of(inputs[:, 0]) == [3, 17, 3]
        assert labels[:, 0].tolist() == [1, 1, 1]
        assert [level - 100 + 50 for level in levels_of(inputs[:, 1])] == labels[:, 1].tolist()
        assert [level - 200 + 53 for level in levels_of(inputs[:, 2])] == labels[:, 2].tolist()
        assert torch.equal(labels[0], labels[2])
        every = source.draw(torch.arange(20))[1]
        assert set(every[:, 1].tolist()) == {50, 51, 52}
        seen.add(tuple(every[:, 1].tolist()))
    assert len(seen) == 2


def test_without_pools_pictures_are_mixed_among_the_images(context: Callable[..., Context]) -> None:
    source = ReplaySource(context(), own_images(4), Replay(bright([100, 101]), torch.tensor([7, 8])))
    assert source.num_samples == 6
    source.begin_epoch(torch.Generator().manual_seed(0))
    inputs, labels = source.draw(torch.tensor([5, 0, 4, 3]))
    assert levels_of(inputs) == [101, 0, 100, 3]
    assert labels.tolist() == [8, 0, 7, 1]


def test_pictures_of_any_size_come_back_as_they_were_taken(tiny_backbone: Callable[..., Backbone]) -> None:
    random = np.random.RandomState(0)
    sizes = [(5, 7), (9, 3), (4, 4)]
    arrays = [random.randint(0, 256, (1, *size), dtype=np.uint8) for size in sizes]
    images = LabelledImages(ImageStore.from_images(arrays), torch.arange(3), torch.tensor([0, 1, 1]))
    method = ExperienceReplay(tiny_backbone(), ErSettings(), 0)
    taken = take_pictures(Take("pictures", lambda labels: torch.tensor([2, 0])), method, images)
    assert (taken["sizes"].tolist(), taken["labels"].tolist(), int(taken["count"])) == ([[4, 4], [5, 7]], [1, 0], 3)
    assert taken["pixels"].tolist() == [*arrays[2].flatten().tolist(), *arrays[0].flatten().tolist()]
    method.memory.update(torch.zeros(0, dtype=torch.int64), taken, 4)
    canvas, labels = stored(*method.kept).batch(torch.tensor([1]))
    assert np.array_equal(canvas.pixels[0, :, :5, :7].numpy(), arrays[0])
    assert labels.tolist() == [4]
    method.memory.update(
        torch.tensor([1]),
        {**taken, "sizes": taken["sizes"][:1], "labels": taken["labels"][:1], "pixels": taken["pixels"][:16]},
        9,
    )
    assert method.memory.pixels.tolist() == [*arrays[0].flatten().tolist(), *arrays[2].flatten().tolist()]
    assert method.kept[1].tolist() == [4, 10]
    assert int(method.memory.num_met) == 6


class Greedy(SimpleCil):
    """Takes pictures without saying that it keeps any."""

    def learn(self, task: TaskInfo) -> Learning:
        yield Take("pictures", lambda labels: torch.arange(1))
        yield from super().learn(task)


def test_who_does_not_declare_it_gets_no_pictures(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    method = Greedy(tiny_backbone(), SimpleCilSettings(), 0)
    with pytest.raises(ModelError, match="asks for training pictures to keep; inherit from KeepsPictures"):
        learn_task(context(), method, tiny_stream().tasks[0])


@pytest.fixture
def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([3.0]))]


def test_a_step_follows_the_corrected_gradient_of_all_groups(
    context: Callable[..., Context], parameters: list[nn.Parameter]
) -> None:
    first, second = parameters

    def loss(inputs: Tensor, labels: Tensor) -> Tensor:
        return inputs[:, 0] * (first.sum() + 2 * second.sum())

    def other(inputs: Tensor, labels: Tensor) -> Tensor:
        return inputs[:, 1] * (first[0] - second.sum()) + 0 * first[1]

    seen: list[Tensor] = []

    def apply(gradient: Tensor, others: Tensor) -> Tensor:
        seen.extend([gradient, others])
        return gradient + 10 * others[0]

    groups = [Group(parameter) for parameter in parameters]
    optimizer, correction = Sgd(1.0, momentum=0.0), Correction("ten times the other", (other,), apply)
    phase = Phase("train", 1, groups, loss, optimizer, 4, correction=correction)
    step = TrainStep(context().ranks, phase)
    step.optimizer.set_rate(0.1)
    for parameter in parameters:
        parameter.requires_grad_(True)
    # The padding of the last row weighs nothing in either loss.
    inputs, weights = torch.tensor([[1.0, 3.0], [2.0, 5.0], [9.0, 9.0]]), torch.tensor([1.0, 1.0, 0.0])
    step(inputs, torch.zeros(3, dtype=torch.int64), weights, 2)
    assert seen[0].tolist() == [1.5, 1.5, 3.0]
    assert seen[1].tolist() == [[4.0, 0.0, -4.0]]
    assert first.tolist() == pytest.approx([1 - 0.1 * 41.5, 2 - 0.1 * 1.5])
    assert second.tolist() == pytest.approx([3 + 0.1 * 37])
    assert float(step.total) == 3 * (3 + 6)


def test_clipping_comes_after_the_correction(context: Callable[..., Context], parameters: list[nn.Parameter]) -> None:
    def loss(inputs: Tensor, labels: Tensor) -> Tensor:
        return inputs * sum(parameter.sum() for parameter in parameters)

    correction = Correction("larger", (loss,), lambda gradient, others: 100 * gradient + others[0])
    groups = [Group(parameter) for parameter in parameters]
    phase = Phase("train", 1, groups, loss, Sgd(1.0, momentum=0.0), 1, clip_norm=1.0, correction=correction)
    step = TrainStep(context().ranks, phase)
    step.optimizer.set_rate(1.0)
    for parameter in parameters:
        parameter.requires_grad_(True)
    before = torch.cat([parameter.detach().clone() for parameter in parameters])
    step(torch.ones(1), torch.zeros(1, dtype=torch.int64), torch.ones(1), 1)
    moved = torch.cat([parameter.detach() for parameter in parameters]) - before
    assert float(moved.norm()) == pytest.approx(1, abs=1e-4)


class Sweeping(ExperienceReplay):
    """Adds up, before it trains, what a sweep finds with kept pictures beside the images."""

    found: dict[str, Tensor]

    def learn(self, task: TaskInfo) -> Learning:
        """Sweep over images as the last task's pictures come beside them."""
        self.found = yield Pass("sums", self.sums, of="images", replay=self.replay())
        yield from super().learn(task)

    def sums(self, images: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Return how many images and pictures there are, and the sum of all labels."""
        count = weights.sum() * labels[0].numel()
        return {"count": count, "labels": (labels.view(len(labels), -1).sum(1) * weights).sum()}


def test_a_sweep_may_see_kept_pictures_beside_the_images(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    method = Sweeping(tiny_backbone(), ErSettings(epochs=1), 0)
    stream, run = tiny_stream(), context(eval_batch_size=7)
    learn_task(run, method, stream.tasks[0])
    assert (float(method.found["count"]), float(method.found["labels"])) == (24, 12)
    learn_task(run, method, stream.tasks[1])
    assert float(method.found["count"]) == 48
    # Kept pictures count behind the task's two classes.
    assert 12 + 24 * 2 <= float(method.found["labels"]) <= 12 + 24 * 3
