"""EASE: an adapter for each task that never changes again, and classes judged in all subspaces."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from clare_runs import RECIPE, bits, learn
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.store import LabelledImages
from clare.data.stream import Stream, Task
from clare.engine.context import Context
from clare.engine.evaluate import count_parameters, evaluate
from clare.engine.passes import FeatureCache, predict_logits
from clare.errors import SettingsError
from clare.methods.ease import Ease, EaseSettings
from clare.methods.state import restore, snapshot_of
from clare.settings import build_settings
from clare.steps import Pass, Phase, TaskInfo, num_trained

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]
WIDTH, NUM_COORDINATES = 24, 440
E = math.e


def make_ease(backbone: Backbone, **changes: Any) -> Ease:
    return Ease(backbone, EaseSettings.model_validate({**RECIPE, **changes}), 0)


def recut(stream: Stream, sizes: Sequence[int]) -> Stream:
    """Cut a stream of one task into tasks of these sizes."""
    (whole,) = stream.tasks
    tasks, first = [], 0
    for index, size in enumerate(sizes):
        own = (whole.train.labels >= first) & (whole.train.labels < first + size)
        images = LabelledImages(whole.train.store, whole.train.indices[own], whole.train.labels[own] - first)
        tasks.append(Task(index, whole.classes[first : first + size], images))
        first += size
    return Stream(stream.classes, tuple(tasks), stream.test)


def vectors(*numbers: Sequence[float]) -> Tensor:
    """Return plane vectors in the first two coordinates of the features, one row for each, side by side."""
    return torch.cat([torch.cat([torch.tensor(pair), torch.zeros(WIDTH - 2)]) for pair in numbers])


@torch.no_grad()
def teach_by_hand(method: Ease, task: int, means: Tensor) -> None:
    """Teach a task without images, as if its class means were these."""
    classes = tuple(f"class {task}.{label}" for label in range(len(means)))
    learning = method.learn(TaskInfo(task, classes))
    assert isinstance(next(learning), Phase)
    assert isinstance(learning.send({}), Pass)
    with pytest.raises(StopIteration):
        learning.send({"count": torch.full((len(means),), 2.0), "sum": 2 * means.double()})
    method.tasks.append(classes)


def test_the_rate_falls_as_the_settings_say(tiny_backbone: MakeBackbone) -> None:
    step = next(make_ease(tiny_backbone(), schedule="cosine-steps").learn(TaskInfo(0, ("a",))))
    assert isinstance(step, Phase)
    assert step.optimizer.schedule == "cosine-steps"


def test_prototypes_and_logits_by_hand(tiny_backbone: MakeBackbone) -> None:
    method = make_ease(tiny_backbone(), cross_weight=0.1)
    teach_by_hand(method, 0, vectors([1, 0])[None])
    assert torch.equal(method.classify(vectors([3, 4])[None]), torch.tensor([[3 / 5]]))
    teach_by_hand(method, 1, torch.stack([vectors([3, 0], [2, 0]), vectors([0, 2], [0, 4])]))
    torch.testing.assert_close(method.prototypes[0, 1], vectors([2 * E, 4]) / (E + 1))
    own, other = 0.6, 2 / math.sqrt(E**2 + 4)
    expected = torch.tensor([[own + 0.1 * other, 0.0 + 0.1 * 0.6, 1.0 + 0.1 * 0.8]])
    torch.testing.assert_close(method.classify(vectors([3, 4], [0, 5])[None]), expected)
    # A third task, of another size again, replaces what was synthesised and halves the weight of the others.
    teach_by_hand(method, 2, vectors([5, 0], [0, 1], [0, 3])[None])
    torch.testing.assert_close(
        method.prototypes[0, 1], (E * vectors([2, 0]) + vectors([0, 4]) + E * vectors([0, 1])) / (2 * E + 1)
    )
    torch.testing.assert_close(method.prototypes[:3, 2], vectors([0, 3]).expand(3, -1))
    last = method.classify(vectors([3, 4], [0, 5], [0, 1])[None])[0, 3]
    torch.testing.assert_close(last, torch.tensor(1 + 0.05 * (0.6 + 1.0)))


def test_the_bare_subspace_by_hand(tiny_backbone: MakeBackbone) -> None:
    method = make_ease(tiny_backbone(), cross_weight=0.1, bare_subspace=True, bare_weight=0.5)
    teach_by_hand(method, 0, vectors([0, 1], [1, 0])[None])
    teach_by_hand(method, 1, vectors([1, 0], [1, 0], [0, 7])[None])
    # The old class is exact in the bare subspace, and only one class can stand for it in the new one.
    torch.testing.assert_close(method.prototypes[0], vectors([0, 1], [1, 0], [0, 7]).view(3, WIDTH))
    logits = method.classify(vectors([3, 4], [3, 4], [4, 3])[None])
    torch.testing.assert_close(logits, torch.tensor([[0.5 * 0.8 + 0.6 + 0.1 * 0.6, 0.5 * 0.6 + 0.6 + 0.1 * 0.6]]))


def test_adapters_of_earlier_tasks_keep_every_bit(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_ease(tiny_backbone())
    kept: list[list[int]] = []
    for task in tiny_stream(num_tasks=4).tasks:
        learn(context(train="affine"), method, [task])
        rows = [bits(row) for row in method.adapters.values]
        assert len(rows) == task.index + 1
        assert rows[:-1] == kept
        assert rows[-1] not in kept
        kept = rows


def test_what_is_stored_grows_with_every_task(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    for bare in (0, 1):
        method = make_ease(tiny_backbone(), bare_subspace=bool(bare))
        for task in tiny_stream().tasks:
            learn(context(), method, [task])
            num_tasks = task.index + 1
            prototypes = 2 * num_tasks * (num_tasks + bare) * WIDTH
            rows = 2 * WIDTH + 1
            assert count_parameters(method) == {
                "num_stored": num_tasks * NUM_COORDINATES + prototypes + rows,
                "passes_per_image": num_tasks + bare,
                "num_pictures": 0,
                "picture_bytes": 0,
            }
            before = snapshot_of(method)
            phase = next(method.learn(TaskInfo(num_tasks, ("a", "b"))))
            assert isinstance(phase, Phase)
            assert num_trained(phase) == NUM_COORDINATES + rows
            restore(method, before)


@pytest.mark.parametrize("sizes", [(1, 3, 2), (3, 1, 1, 1)])
def test_tasks_of_unequal_size(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, sizes: tuple[int, ...]
) -> None:
    stream = recut(tiny_stream(num_tasks=1, classes_per_task=6), sizes)
    method, run = make_ease(tiny_backbone(), chunk_size=2), context()
    learn(run, method, stream.tasks)
    predicted, target, *_ = evaluate(run, method, stream, len(sizes) - 1)
    assert float((predicted == target).float().mean()) > 0.9
    # In its own subspace and all earlier ones, the prototype of a class is the mean of its features there.
    first = 0
    for task in stream.tasks:
        canvas, labels = task.train.batch(torch.arange(len(task.train)))
        features = method.features(run.transforms.test(canvas)).view(len(labels), -1, WIDTH)
        for label in range(len(task.classes)):
            mean = features[labels == label].mean(0)[: task.index + 1]
            torch.testing.assert_close(method.prototypes[first + label, : task.index + 1], mean, rtol=1e-4, atol=1e-5)
        first += len(task.classes)


def test_training_looks_at_the_tasks_own_subspace_alone(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream = tiny_stream()
    method = make_ease(tiny_backbone())
    learn(context(), method, stream.tasks)
    images, labels = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1])
    with torch.no_grad():
        losses, logits = method.loss(images, labels), method(images)
        method.adapters.kept.data.add_(0.1)
        assert torch.equal(method.loss(images, labels), losses)
        assert not torch.equal(method(images), logits)
        method.adapters.kept.data.zero_()
        before = method(images)
        # The rows of training have no part in what is predicted.
        method.head.block.data.add_(1.0)
        assert torch.equal(method(images), before)
        assert not torch.equal(method.loss(images, labels), losses)


def test_chunks_change_no_logit_but_for_rounding(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, run = tiny_stream(num_tasks=4), context()
    logits = []
    for chunk_size in (0, 1, 3):
        method = make_ease(tiny_backbone(), chunk_size=chunk_size)
        learn(run, method, stream.tasks)
        logits.append(predict_logits(run, method, stream.test))
    for other in logits[1:]:
        torch.testing.assert_close(other, logits[0], rtol=1e-4, atol=1e-5)


def test_logits_keep_full_precision(tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext) -> None:
    method = make_ease(tiny_backbone())
    learn(context(), method, tiny_stream().tasks)
    features = torch.randn(3, 3 * WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        in_half = method.classify(features)
    assert in_half.dtype == torch.float32
    assert torch.equal(in_half, method.classify(features))


@pytest.mark.parametrize("bare", [False, True])
def test_evaluation_looks_at_an_image_once_for_each_subspace(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, bare: bool
) -> None:
    stream, run, kept = tiny_stream(), context(), FeatureCache()
    method = make_ease(tiny_backbone(), bare_subspace=bare)
    assert method.features_version is None
    looked_at: list[tuple[int, int]] = []
    features = method.adapters.features

    def counted(images: Tensor, adapters: Tensor, chunk_size: int = 0) -> Tensor:
        looked_at.append((len(images), len(adapters)))
        return features(images, adapters, chunk_size)

    for task in stream.tasks:
        learn(run, method, [task])
        seen = (stream.test.labels < stream.num_seen(task.index)).nonzero().squeeze(1)
        method.adapters.features = counted  # type: ignore[method-assign]
        fixed = kept.of(run, method, stream.test, seen)
        method.adapters.features = features  # type: ignore[method-assign]
        num_new = len(seen) // (task.index + 1)
        old = [(len(seen) - num_new, 1)] if task.index else []
        assert looked_at == [*old, (num_new, task.index + 1)]
        looked_at.clear()
        assert fixed is not None
        assert fixed.shape == (len(seen), WIDTH * (bare + task.index + 1))
        ours = predict_logits(run, method, stream.test.select(seen), fixed)
        theirs = predict_logits(run, method, stream.test.select(seen))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["trained", "aligned"])
def test_other_rows_than_class_means_are_refused(kind: str) -> None:
    with pytest.raises(SettingsError, match=rf"'method\.head\.kind' got '{kind}'; it is prototype"):
        build_settings(EaseSettings, {"head": {"kind": kind}}, "method")


def test_mistaken_settings_are_named() -> None:
    with pytest.raises(SettingsError, match=r"no setting 'method\.head\.form'.*allowed here: kind, learnt_scale"):
        build_settings(EaseSettings, {"head": {"form": "linear"}}, "method")
    with pytest.raises(SettingsError, match=r"'method\.cross_wieght' \(did you mean 'cross_weight'\?\)"):
        build_settings(EaseSettings, {"cross_wieght": 0.2}, "method")
    with pytest.raises(SettingsError, match=r"'method\.chunk_size' got -1"):
        build_settings(EaseSettings, {"chunk_size": -1}, "method")
