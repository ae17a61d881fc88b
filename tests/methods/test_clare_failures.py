"""What CLARE does when the pool is empty, a task is wrong, or its training fails."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from clare_runs import all_bits, bits, learn, make_clare, mask_of, watch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context, Silence
from clare.engine.evaluate import evaluate
from clare.errors import DataError, DivergedError, ModelError
from clare.methods.clare import Clare
from clare.steps import Notice

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


class Listener(Silence):
    """Collects notices, and interrupts the run at a batch when told to."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.notices: list[str] = []
        self.num_batches = 0
        self.interrupt_at = interrupt_at

    def batch(self) -> None:
        """Count."""
        self.num_batches += 1
        if self.num_batches == self.interrupt_at:
            raise KeyboardInterrupt

    def notice(self, text: str) -> None:
        """Collect."""
        self.notices.append(text)


def diverging(method: Clare) -> None:
    """Set a rate and a decay with which values grow without bound."""
    method.settings = method.settings.model_copy(update={"learning_rate": 100.0, "weight_decay": 1.0, "batch_size": 2})


@pytest.mark.parametrize("mask", ["learnt", "random"])
@pytest.mark.parametrize("two_stage", [True, False])
def test_an_exhausted_pool_is_said_once_and_the_head_goes_on(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, mask: str, two_stage: bool
) -> None:
    stream, listener = tiny_stream(), Listener()
    recipe = {"learning_rate": 0.005, "two_stage": two_stage, "head": {"kind": "trained"}}
    # Unmoved coordinates count too, so that the first task takes every one of them.
    method = make_clare(tiny_backbone(), sparsity=0.0, select_unmoved=True, mask=mask, **recipe)
    moments = watch(method)
    run = context(listener=listener)
    learn(run, method, stream.tasks[:1])
    assert (method.ledger.num_free, method.ledger.lengths[-1]) == (0, 440)
    assert listener.notices == []
    full = method.adapter.values.detach().clone()
    for task in stream.tasks[1:]:
        first_moment = len(moments)
        learn(run, method, [task])
        assert not mask_of(method, task.index).any()
        assert bits(method.adapter.values) == bits(full)
        phases = [moment for moment in moments[first_moment:] if not isinstance(moment.step, Notice)]
        assert [moment.phase.name for moment in phases] == ["train"]
        assert bits(phases[0].after["block"]) != bits(phases[0].before["block"])
    assert len(listener.notices) == 1
    assert "no free coordinates" in listener.notices[0]
    assert method.ledger.lengths == [440, 0, 0]
    assert method.head.num_classes == 6


def test_prototypes_go_on_without_free_coordinates(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream = tiny_stream()
    method = make_clare(tiny_backbone(), sparsity=0.0, learning_rate=0.005, mask="random")
    learn(context(), method, stream.tasks)
    predicted, target, *_ = evaluate(context(), method, stream, 2)
    assert float((predicted == target).float().mean()) > 0.9


def test_wrong_tasks_are_refused_and_change_nothing(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    first, second, _ = tiny_stream().tasks
    method = make_clare(tiny_backbone())
    learn(context(), method, [first])
    before = all_bits(method)
    nothing = second.train.select(torch.arange(0))
    wrong = [
        (first, ModelError, "'class 00' was learnt before"),
        (replace(second, classes=("new", "class 01")), ModelError, "'class 01' was learnt before"),
        (replace(second, classes=("new", "new")), ModelError, "'new' twice"),
        (replace(second, classes=(), train=nothing), ModelError, "no classes"),
        (replace(second, train=nothing), DataError, "'class 02' has no training images"),
        (replace(second, classes=("a", "b", "c")), DataError, "'c' has no training images"),
        (replace(second, classes=("a",)), DataError, "is 1, but it has 1 classes"),
    ]
    for task, error, message in wrong:
        with pytest.raises(error, match=message):
            learn(context(), method, [task])
        assert all_bits(method) == before


def test_a_task_that_diverges_leaves_the_method_as_it_was(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    tasks = tiny_stream().tasks
    method, calm = make_clare(tiny_backbone()), make_clare(tiny_backbone())
    for learner in (method, calm):
        learn(context(), learner, tasks[:1])
    before, backbone = all_bits(method), {name: bits(t) for name, t in method.backbone.state_dict().items()}
    settings = method.settings
    diverging(method)
    with pytest.raises(DivergedError, match=r"task 2 .*'probe'.*now 100\.0"):
        learn(context(), method, tasks[1:2])
    assert all_bits(method) == before
    assert {name: bits(t) for name, t in method.backbone.state_dict().items()} == backbone
    assert method.ledger.lengths[-1] == method.ledger.lengths[0]
    assert not method.training
    assert not any(parameter.requires_grad for parameter in method.parameters())
    method.settings = settings
    for learner in (method, calm):
        learn(context(), learner, tasks[1:])
    assert all_bits(method) == all_bits(calm)


def test_the_very_first_task_may_diverge_too(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), mask="random")
    before, settings = all_bits(method), method.settings
    diverging(method)
    with pytest.raises(DivergedError, match=r"task 1 .*'train'"):
        learn(context(), method, tiny_stream().tasks[:1])
    assert all_bits(method) == before
    assert method.classes == []
    method.settings = settings
    learn(context(), method, tiny_stream().tasks[:1])
    assert bool(torch.isfinite(method.adapter.values).all())


@pytest.mark.parametrize("interrupt_at", [1, 7, 13])
def test_an_interrupted_task_leaves_the_method_as_it_was(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, interrupt_at: int
) -> None:
    """A task has six batches in Stage 1, six in Stage 2 and one sweep for the class means."""
    tasks = tiny_stream().tasks
    method, calm = make_clare(tiny_backbone()), make_clare(tiny_backbone())
    for learner in (method, calm):
        learn(context(), learner, tasks[:1])
    before = all_bits(method)
    with pytest.raises(KeyboardInterrupt):
        learn(context(listener=Listener(interrupt_at)), method, tasks[1:2])
    assert all_bits(method) == before
    for learner in (method, calm):
        learn(context(), learner, tasks[1:])
    assert all_bits(method) == all_bits(calm)
