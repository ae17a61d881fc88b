"""Every draw of a run comes from its seed and its place; the caller's random state is neither used nor changed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.data.stream import Stream, Task
from clare.engine.context import Context
from clare.engine.evaluate import evaluate
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.methods.base import Method, MethodSettings
from clare.methods.finetune import FineTune
from clare.steps import Group, Learning, Pass, Phase, Sgd, TaskInfo


class Diary(Method):
    """A method that writes down every random thing it meets: images, the global random state, and its own."""

    name = "diary"
    summary = "a method for these tests alone"

    def __init__(self, backbone: Backbone, seed: int) -> None:
        super().__init__(backbone, MethodSettings(), seed)
        self.weight = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.batches: list[Tensor] = []
        self.dropouts: list[Tensor] = []
        self.between: list[Tensor] = []

    def learn(self, task: TaskInfo) -> Learning:
        """Sweep once and train twice, drawing from the global state before each step."""
        self.between.append(torch.rand(4))
        yield Pass("sweep", self.note, view="train")
        for name in ("first", "second"):
            self.between.append(torch.rand(4))
            yield Phase(name, 2, [Group(self.weight)], self.noted_loss, Sgd(0.1), batch_size=100)
        self.head.append(torch.ones(len(task.classes), self.head.num_features))

    def note(self, images: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Write down a batch."""
        self.batches.append(images.clone())
        return {"count": weights.sum()}

    def noted_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Write down a batch and what dropout would draw."""
        self.batches.append(images.clone())
        self.dropouts.append(torch.rand(4))
        return self.weight * labels.double()


@pytest.fixture
def diary(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> Callable[..., Diary]:
    """Return write(seed=0, global_seed=0, tasks=2): the diary of a stream whose tasks have the same images."""

    def write(seed: int = 0, global_seed: int = 0, tasks: int = 2) -> Diary:
        stream, method = tiny_stream(), Diary(tiny_backbone(), seed)
        torch.manual_seed(global_seed)
        for index in range(tasks):
            task = Task(index, (f"{index} a", f"{index} b"), stream.tasks[0].train)
            learn_task(context(seed=seed, train="affine"), method, task, Journal())
        return method

    return write


def all_different(tensors: list[Tensor]) -> bool:
    """Tell whether no two tensors are the same."""
    return len({tensor.numpy().tobytes() for tensor in tensors}) == len(tensors)


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    """Tell whether two lists hold the same tensors."""
    return len(one) == len(other) and all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_every_place_draws_something_else(diary: Callable[..., Diary]) -> None:
    method = diary()
    assert (len(method.batches), len(method.dropouts), len(method.between)) == (10, 8, 6)
    assert all_different(method.batches)
    assert all_different(method.dropouts)
    assert all_different(method.between)


def test_a_place_draws_the_same_whatever_the_global_state(diary: Callable[..., Diary]) -> None:
    one, other = diary(global_seed=1), diary(global_seed=2)
    assert same(one.batches, other.batches)
    assert same(one.dropouts, other.dropouts)
    assert same(one.between, other.between)


def test_another_seed_draws_something_else(diary: Callable[..., Diary]) -> None:
    one, other = diary(seed=1), diary(seed=2)
    assert all_different(one.batches + other.batches)
    assert all_different(one.dropouts + other.dropouts)
    assert all_different(one.between + other.between)


def test_a_task_draws_the_same_whatever_came_before(diary: Callable[..., Diary]) -> None:
    short, long = diary(tasks=1), diary(tasks=2)
    assert same(short.batches, long.batches[:5])
    assert same(short.dropouts, long.dropouts[:4])


def test_the_callers_random_state_is_left_alone(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run = tiny_stream(), context(train="affine")
    method = FineTune(tiny_backbone(), FineTune.settings_type.model_validate({"epochs": 1}), 0)
    torch.manual_seed(5)
    expected = torch.rand(8)
    torch.manual_seed(5)
    learn_task(run, method, stream.tasks[0], Journal())
    evaluate(run, method, stream, 0)
    assert torch.equal(torch.rand(8), expected)
