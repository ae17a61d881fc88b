"""Sweeps: one row for each image, results that ranks share, and what evaluation keeps between tasks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream, merge_tasks
from clare.engine.context import Context, Silence
from clare.engine.evaluate import evaluate
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.engine.passes import FeatureCache, predict_logits
from clare.methods.base import Method, bare_features
from clare.methods.protocols import CachesQueries
from clare.methods.simplecil import SimpleCil, SimpleCilSettings
from clare.steps import Collect, Learning, Solve, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


class Asking(SimpleCil):
    """Asks for two rows per image and for a computation, and keeps the answers."""

    answers: dict[str, Any]

    def learn(self, task: TaskInfo) -> Learning:
        """Collect means and spreads of the images, then solve."""
        rows = yield Collect("means", lambda images: torch.stack([images.mean((1, 2, 3)), images.std((1, 2, 3))], 1))
        solved = yield Solve(
            "sum", lambda: {"total": rows["values"].sum(0), "count": torch.tensor(len(rows["values"]))}
        )
        self.answers = {**rows, **solved}
        yield from super().learn(task)


@pytest.mark.parametrize("batch_size", [1, 5, 24, 100])
def test_collected_rows_come_in_the_images_order(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, batch_size: int
) -> None:
    task, run = tiny_stream().tasks[1], context(eval_batch_size=batch_size)
    method = Asking(tiny_backbone(), SimpleCilSettings(), 0)
    learn_task(run, method, task, Journal())
    canvas = task.train.store.batch(task.train.indices)
    images = run.transforms.test(canvas)
    expected = torch.stack([images.mean((1, 2, 3)), images.std((1, 2, 3))], 1)
    torch.testing.assert_close(method.answers["values"], expected)
    assert method.answers["labels"].tolist() == task.train.labels.tolist()
    torch.testing.assert_close(method.answers["total"], expected.sum(0))
    assert int(method.answers["count"]) == len(task.train)


class AskingFeatures(SimpleCil):
    """Asks for twice its features, in a way of its own or another's, and keeps the answer."""

    answer: Tensor
    is_own = True

    def twice(self, features: Tensor) -> Tensor:
        """Double them."""
        return 2 * features

    def learn(self, task: TaskInfo) -> Learning:
        """Collect, then learn as before."""
        function = self.twice if self.is_own else lambda features: 2 * features
        self.answer = (yield Collect("twice", function, of="features"))["values"]
        yield from super().learn(task)


@pytest.mark.parametrize("is_own", [True, False])
def test_rows_of_features_are_made_of_features_whoever_makes_them(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, is_own: bool
) -> None:
    task, run = tiny_stream().tasks[0], context()
    method = AskingFeatures(tiny_backbone(), SimpleCilSettings(), 0)
    method.is_own = is_own
    learn_task(run, method, task, Journal())
    images = run.transforms.test(task.train.store.batch(task.train.indices))
    torch.testing.assert_close(method.answer, 2 * method.features(images))


class Counting(SimpleCil):
    """Counts the images it looks at, and says that its features change when told to."""

    num_looked_at = 0
    version = 0

    @property
    def features_version(self) -> int:
        """Return the version."""
        return self.version

    def features(self, images: Tensor) -> Tensor:
        """Count."""
        self.num_looked_at += len(images)
        return super().features(images) * (1 + self.version)


class Queried(Method, CachesQueries):
    """Counts the images whose queries it looks for, and looks at them again for its features."""

    name = "queried"
    num_looked_at = 0

    def learn(self, task: TaskInfo) -> Learning:
        """Finish rows from one pass over the task."""
        yield from self.head.finish(len(task.classes))

    def queries(self, images: Tensor) -> Tensor:
        """Count."""
        self.num_looked_at += len(images)
        return bare_features(self, images)

    def features_from(self, images: Tensor, queries: Tensor) -> Tensor:
        """Return the queries with the brightness."""
        return queries + images.mean((1, 2, 3))[:, None]

    def features(self, images: Tensor) -> Tensor:
        """Return the same from the start."""
        return self.features_from(images, self.queries(images))


@pytest.mark.parametrize("kind", [Counting, Queried])
def test_evaluation_computes_what_stays_the_same_once(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, kind: type[Counting]
) -> None:
    stream, run, kept = tiny_stream(), context(eval_batch_size=5), FeatureCache()
    method = kind(tiny_backbone(), SimpleCilSettings(), 0)
    for task in stream.tasks:
        learn_task(run, method, task, Journal())
        method.num_looked_at = 0
        predicted, target, *_ = evaluate(run, method, stream, task.index, kept)
        # The new classes' images alone, in batches of 5 that are padded at the end.
        assert method.num_looked_at in range(12, 16)
        seen = stream.test.select((stream.test.labels < stream.num_seen(task.index)).nonzero().squeeze(1))
        assert predicted.tolist() == predict_logits(run, method, seen).argmax(1).tolist()
        assert target.tolist() == seen.labels.tolist()
    if kind is Queried:
        return
    method.version, method.num_looked_at = 1, 0
    evaluate(run, method, stream, 2, kept)
    assert method.num_looked_at in range(36, 41)
    before = kept.rows.clone()
    method.version = 2
    evaluate(run, method, stream, 2, kept)
    torch.testing.assert_close(kept.rows, before * 3 / 2)


def test_merged_tasks_hold_every_image_under_its_place_in_the_stream(tiny_stream: MakeStream) -> None:
    stream = tiny_stream()
    (merged,) = merge_tasks(stream).tasks
    assert merged.classes == stream.classes
    assert len(merged.train) == sum(len(task.train) for task in stream.tasks)
    position = 0
    for task in stream.tasks:
        part = slice(position, position + len(task.train))
        assert torch.equal(merged.train.indices[part], task.train.indices)
        assert torch.equal(merged.train.labels[part], task.train.labels + 2 * task.index)
        position += len(task.train)


def test_a_listener_hears_of_every_sweep(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    class Names(Silence):
        """Keeps the names of steps."""

        def __init__(self) -> None:
            self.names: list[str] = []

        def step(self, name: str, num_epochs: int) -> None:
            """Keep it."""
            self.names.append(name)

    listener = Names()
    method = Asking(tiny_backbone(), SimpleCilSettings(), 0)
    learn_task(context(listener=listener), method, tiny_stream().tasks[0], Journal())
    assert listener.names == ["means", "sum", "statistics"]
