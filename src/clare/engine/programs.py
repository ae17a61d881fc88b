"""The programs of a run by kind: eager, or recorded once and replayed for every task."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Literal

from torch import Tensor

from clare.engine.capture import CapturedForward, CapturedStep
from clare.engine.ranks import Ranks
from clare.engine.step import TrainStep
from clare.methods.base import Method
from clare.methods.protocols import GrowsFeatures, GrowsRoom
from clare.steps import Phase, Sgd

Mode = Literal["off", "graph", "fused"]


class Programs:
    """Training steps and forward passes; a captured one is made at most once for each kind."""

    def __init__(self, ranks: Ranks, mode: Mode, notice: Callable[[str], None]) -> None:
        self.ranks, self.mode, self.notice = ranks, mode, notice
        self.captured: dict[Hashable, CapturedStep | CapturedForward] = {}
        self.room = 0

    def captures(self, method: Method) -> bool:
        """Tell whether a method's programs are recorded: only where nothing it computes with changes its place."""
        return self.mode != "off" and method.fixed_shapes

    def captures_features(self, method: Method) -> bool:
        """Tell whether a method's sweeps are recorded: not where its features grow from task to task."""
        return self.captures(method) and not isinstance(method, GrowsFeatures)

    def train_step(self, method: Method, phase: Phase) -> TrainStep:
        """Return a step for this phase, ready to begin; images are worth recording, drawn features are not."""
        if phase.data is not None or not self.captures(method):
            return TrainStep(self.ranks, phase)
        # The rate lies in a tensor, whatever it comes from.
        optimizer = replace(phase.optimizer, learning_rate=0.0)
        if isinstance(optimizer, Sgd):
            optimizer = replace(optimizer, start=0)
        kind = ("train", phase.batch_size, optimizer, phase.clip_norm, _kind(phase))
        step = self._recorded(method).get(kind)
        if step is None:
            step = self.captured[kind] = CapturedStep(self.ranks, phase, self.mode == "fused", self.notice)
        assert isinstance(step, CapturedStep)
        step.begin(phase)
        return step

    def _recorded(self, method: Method) -> dict[Hashable, CapturedStep | CapturedForward]:
        """Return what was recorded, nothing where the method's tensors have moved to more room since."""
        room = method.room if isinstance(method, GrowsRoom) else 0
        if room != self.room:
            self.captured.clear()
            self.room = room
        return self.captured

    def sweep_size(self, method: Method, num_images: int, batch_size: int) -> int:
        """Return the batch size of a sweep: always the same when recorded, no larger than needed otherwise."""
        return batch_size if self.captures_features(method) else min(batch_size, num_images)

    def forward(self, method: Method, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Return a function of the method without gradient; a recorded value is overwritten by the next call."""
        if not self.captures_features(method):
            with self.ranks.autocast():
                return function(*inputs)
        # What was recorded reads the tensors of one method; another's must not be answered with it.
        kind = (method, function.__name__, *(tuple(part.shape) for part in inputs))
        program = self._recorded(method).get(kind)
        if program is None:
            fused = self.mode == "fused"
            program = self.captured[kind] = CapturedForward(self.ranks, function, inputs, fused, self.notice)
        assert isinstance(program, CapturedForward)
        return program(*inputs)


def _kind(phase: Phase) -> Hashable:
    """Return what makes a phase's step another program: its loss and the shape of its groups."""
    groups = tuple(
        (
            id(group.parameter),
            group.mask is not None,
            (group.penalty.form, group.penalty.weight, group.penalty.turn) if group.penalty else None,
            group.decay_towards is not None,
            group.rate_factor,
            group.pull and group.pull.share,
            group.steepest,
        )
        for group in phase.groups
    )
    agreement = phase.agreement
    halves = agreement and (agreement.radius, agreement.num_classes, *map(id, agreement.parameters))
    beside = phase.replay and len(phase.replay.pools)
    correction = phase.correction and (phase.correction.name, len(phase.correction.losses))
    return (phase.loss.__qualname__, phase.remarks, groups, halves, beside, correction)
