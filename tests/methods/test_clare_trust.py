"""A task that would make earlier classes unrecognisable is shortened or taken back, with a notice and in the record."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import bits, learn, make_clare, mask_of, watch

from clare.backbones.vit import Backbone
from clare.data.store import LabelledImages
from clare.data.stream import Stream, Task
from clare.engine.context import Context
from clare.engine.evaluate import evaluate
from clare.methods._shared import need
from clare.methods.clare import Clare
from clare.presets.schema import Experiment
from clare.settings import idle
from clare.steps import Notice, Phase
from clare.testing import promises
from clare.testing.promises import Promise
from clare.testing.world import Case

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]
GENTLE: dict[str, Any] = {"learning_rate": 0.02, "epochs": 4, "adapter": {"bottleneck": 16}}
BAD = 2


def hurried(method: Clare, index: int, factor: float) -> None:
    """Let one task be learnt at so many times the rate."""
    original = method.phase

    def phase(*arguments: Any) -> Phase:
        usual = original(*arguments)
        rate = usual.optimizer.learning_rate * (factor if len(method.tasks) == index else 1)
        return replace(usual, optimizer=replace(usual.optimizer, learning_rate=rate))

    method.phase = phase  # type: ignore[method-assign]


def mislabelled(task: Task) -> Task:
    """Return a task in which every label is drawn."""
    labels = torch.randint(0, 4, task.train.labels.shape, generator=torch.Generator().manual_seed(0))
    return replace(task, train=LabelledImages(task.train.store, task.train.indices, labels))


def accuracy_without(context: Context, method: Clare, stream: Stream, index: int) -> float:
    """Return the accuracy over all classes but those of one task."""
    predicted, target, *_ = evaluate(context, method, stream, len(stream.tasks) - 1)
    others = (target < 4 * index) | (target >= 4 * index + 4)
    return float((predicted == target)[others].float().mean())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_rest_ends_near_the_stream_without_a_task_at_forty_times_the_rate(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, seed: int
) -> None:
    ends, found = {}, {}
    stream = tiny_stream(num_tasks=5, classes_per_task=4, seed=seed)
    for name, factor, limit in (("calm", 1, 1.0), ("hurt", 40, 1.0), ("guarded", 40, 0.02)):
        method = make_clare(tiny_backbone(), seed, trust=limit, **GENTLE)
        hurried(method, BAD, factor)
        moments = watch(method)
        for task in stream.tasks:
            learn(context(), method, [task])
            found[name, task.index] = method.diagnosis().get("trust")
        ends[name] = accuracy_without(context(), method, stream, BAD)
        notices = [moment.step.text for moment in moments if isinstance(moment.step, Notice)]
        assert any("earlier classes would be lost" in text for text in notices) == (name == "guarded")
    assert ends["hurt"] < ends["calm"] - 0.1
    assert ends["guarded"] >= ends["calm"] - 0.03
    assert found["guarded", 0] is None
    assert found["guarded", BAD]["length"] < 1
    assert found["guarded", BAD]["lost"][0] > 0.02
    assert json.loads(json.dumps(found["guarded", BAD])) == found["guarded", BAD]


def test_wrong_labels_leave_the_rest_where_it_is(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, ends = tiny_stream(num_tasks=5, classes_per_task=4), {}
    for name in ("calm", "guarded"):
        method = make_clare(tiny_backbone(), trust=1.0 if name == "calm" else 0.02, **GENTLE)
        for task in stream.tasks:
            learn(context(), method, [mislabelled(task) if name == "guarded" and task.index == BAD else task])
        ends[name] = accuracy_without(context(), method, stream, BAD)
    assert ends["guarded"] >= ends["calm"] - 0.03


@pytest.mark.parametrize(
    ("costs", "length"), [([0.0], 1.0), ([0.2, 0.05], 0.5), ([0.2] * 3 + [0.05], 0.125), ([0.2] * 4, 0), ([0.3], 0)]
)
def test_the_longest_way_within_the_limit_is_gone(
    tiny_backbone: MakeBackbone,
    tiny_stream: MakeStream,
    context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    costs: list[float],
    length: float,
) -> None:
    told = iter(costs)
    monkeypatch.setattr(need, "accuracy_lost", lambda *_: {"lost": torch.tensor(next(told))})
    method = make_clare(tiny_backbone(), trust=0.1, **GENTLE)
    moments = watch(method)
    first, second, _ = tiny_stream().tasks
    learn(context(), method, [first])
    shared = method.adapter.values.detach().clone()
    learn(context(), method, [second])
    trained = next(m for m in reversed(moments) if isinstance(m.step, Phase) and m.step.name == "train").after["values"]
    assert bits(method.adapter.values) == bits(shared.lerp(trained, length))
    assert bool(mask_of(method, 1).any()) == (length > 0)
    assert method.diagnosis()["trust"] == {"length": length, "lost": pytest.approx(costs)}
    assert method.classes == [*first.classes, *second.classes]


class Guarded(Case):
    """A method whose tasks are nearly all held back."""

    def experiment(self, *overrides: str, seed: int | None = None) -> Experiment:
        """Return a run within a trust region."""
        return super().experiment("method.trust=0", "method.learning_rate=0.1", *overrides, seed=seed)


@pytest.mark.parametrize("name", ["clare", "clare-plus"])
@pytest.mark.parametrize(
    "promise",
    [
        promises.a_loaded_model_answers_as_the_saved_one,
        promises.a_snapshot_brings_everything_back,
        promises.a_stopped_run_goes_on_as_if_it_had_not_stopped,
        promises.frozen_stays_frozen,
    ],
    ids=lambda value: value.__name__,
)
def test_promises_hold_within_a_trust_region(tiny_preset: Path, tmp_path: Path, name: str, promise: Promise) -> None:
    promise(Guarded(name, "aligned", tiny_preset, tmp_path))


def test_it_acts_where_means_are_kept(tiny_backbone: MakeBackbone) -> None:
    for kind, acts in (("trained", False), ("ridge", False), ("prototype", True), ("discriminant", True)):
        settings = make_clare(tiny_backbone(), trust=0.1, head={"kind": kind}).settings
        assert (not list(idle(settings, {"trust": 0.1}, "method."))) == acts
