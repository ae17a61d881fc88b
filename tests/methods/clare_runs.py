"""Small methods for the tests, and a way to see what a method asks for and what it looks like then."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Task
from clare.engine.context import Context
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.methods._shared.adapted import AdaptedMethod
from clare.methods.base import Method
from clare.methods.clare import Clare, ClareSettings
from clare.methods.state import learnt_tensors, structure_of
from clare.steps import Learning, Phase, Step, TaskInfo, next_step

# Strong decay and momentum, so that whatever a mask does not hold would move.
RECIPE: dict[str, Any] = {
    "adapter": {"bottleneck": 4},
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "weight_decay": 5e-2,
}
CLARE_RECIPE: dict[str, Any] = {**RECIPE, "probe_epochs": 2, "sparsity": 0.8}


def make_clare(backbone: Backbone, seed: int = 0, **changes: Any) -> Clare:
    """Return CLARE on the backbone, with the recipe and these changes."""
    return Clare(backbone, ClareSettings.model_validate({**CLARE_RECIPE, **changes}), seed)


def learn(context: Context, method: Method, tasks: Iterable[Task]) -> None:
    """Learn some tasks and keep no journal."""
    for task in tasks:
        learn_task(context, method, task, Journal())


def bits(tensor: Tensor) -> list[int]:
    """Return the bit patterns of a float tensor."""
    numbers: list[int] = tensor.detach().contiguous().flatten().view(torch.int32).tolist()
    return numbers


def all_bits(method: Method) -> dict[str, Any]:
    """Return everything that a method has learnt, in a form that compares to the bit."""
    tensors = {
        name: bits(tensor) if tensor.is_floating_point() else tensor.tolist()
        for name, tensor in learnt_tensors(method).items()
    }
    return {"structure": structure_of(method), **tensors}


def mask_of(method: Clare, task: int) -> Tensor:
    """Return the mask of a learnt task."""
    mask = torch.zeros_like(method.ledger.free)
    mask[method.ledger.claim_of(task)[0]] = True
    return mask


@dataclass(frozen=True)
class Moment:
    """A step that a method asked for, and the method just before and just after the step ran."""

    step: Step
    before: dict[str, Tensor]
    after: dict[str, Tensor]

    @property
    def phase(self) -> Phase:
        """The step, which must be a phase."""
        assert isinstance(self.step, Phase)
        return self.step


def phases_of(method: Method) -> list[Phase]:
    """Return a list that fills with the phases of all tasks learnt from now on."""
    phases: list[Phase] = []
    original = method.learn

    def watched(task: TaskInfo) -> Learning:
        learning = original(task)
        result = None
        while True:
            try:
                step = next_step(learning, result)
            except StopIteration:
                return
            if isinstance(step, Phase):
                phases.append(step)
            result = yield step

    method.learn = watched  # type: ignore[method-assign]
    return phases


def watch(method: AdaptedMethod) -> list[Moment]:
    """Return a list that fills with the steps of all tasks learnt from now on."""
    moments: list[Moment] = []
    original = method.learn

    def state() -> dict[str, Tensor]:
        return {"values": method.adapter.values.detach().clone(), "block": method.head.block.detach().clone()}

    def watched(task: TaskInfo) -> Learning:
        learning = original(task)
        try:
            step = next(learning)
            while True:
                before = state()
                result = yield step
                moments.append(Moment(step, before, state()))
                step = learning.send(result)
        except StopIteration:
            return

    method.learn = watched  # type: ignore[method-assign]
    return moments
