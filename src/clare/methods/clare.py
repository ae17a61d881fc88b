"""CLARE: each task finds, trains and freezes a sparse set of the shared adapter's coordinates.

Fu, Lou, Liao, Yu: "CLARE: Scalable Class-Incremental Continual Learning via a Sparsity-Based Framework".
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods.adapted import AdaptedMethod, AdaptedSettings
from clare.methods.base import Capacity, register
from clare.sparse.diagnosis import count_per_block, movement_histogram, smallest
from clare.sparse.ledger import Ledger
from clare.sparse.select import budget_of, select_random, select_top
from clare.steps import Choosing, Group, Learning, Notice, Penalty, TaskInfo


class ClareSettings(AdaptedSettings):
    """The paper's hyper-parameters, and one setting for each variant it measures."""

    sparsity: float = Field(0.95, ge=0, lt=1, description="Share of the free coordinates that a task leaves free.")
    probe_epochs: int = Field(5, ge=1, le=10_000, description="Epochs of Stage 1, which finds the mask.")
    penalty_weight: float = Field(1e-4, ge=0, le=10, description="Weight of the Stage-1 penalty on movement.")
    penalty: Literal["l1-proximal", "l1-subgradient", "l2"] = Field(
        "l1-proximal", description="Form of the Stage-1 penalty; the paper's text reads as l1-subgradient."
    )
    probe_decay: Literal["initial", "zero"] = Field(
        "initial", description="Where weight decay pulls in Stage 1; towards zero it biases the scores."
    )
    probe_head: Literal["copy", "keep", "frozen"] = Field(
        "copy", description="Rows in Stage 1: a throw-away copy, kept for Stage 2, or held at their initial values."
    )
    mask: Literal["learnt", "random", "none"] = Field(
        "learnt", description="Coordinates that moved most in Stage 1, as many at random, or every coordinate."
    )
    capacity_aware: bool = Field(
        True, description="Budget from what is free; otherwise a constant share of all, overlap allowed."
    )
    constant_share: float = Field(
        0.05, gt=0, le=1, description="Share of all coordinates per task when not capacity-aware."
    )
    two_stage: bool = Field(
        True, description="Reset and train again after the mask is found, or keep the largest changes."
    )
    start: Literal["shared", "initial"] = Field(
        "shared",
        description="Where a task's training starts: the shared adapter, or its initial values (independent tuning).",
    )
    merge: Literal["state", "literal"] = Field(
        "state",
        description="Keep the trained values, or add deltas as printed, which double-counts where masks overlap.",
    )


@register
class Clare(AdaptedMethod):
    """One adapter, one head, disjoint sparse masks."""

    name = "clare"
    summary = "finds, trains and freezes a sparse set of free adapter coordinates for each task"
    family = "adapters"
    tiny: ClassVar[dict[str, Any]] = {"probe_epochs": 2}
    fixed_shapes = True
    keeps_initial = True
    settings_type = ClareSettings
    settings: ClareSettings

    def __init__(self, backbone: Backbone, settings: ClareSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.ledger = Ledger(self.adapter.values.numel())
        self.movement: dict[str, Any] | None = None

    def learn(self, task: TaskInfo) -> Learning:
        """Find the mask, learn within it, merge, and freeze it; then finish the head."""
        yield from self.adapt(task)
        yield from self.head.finish(len(task.classes))

    def adapt(self, task: TaskInfo) -> Learning:
        """Learn the task in coordinates of its own, which are frozen from then on."""
        yield from self.open_rows(task)
        shared = self.adapter.values.detach().clone()
        if self.settings.start == "initial":
            self.adapter.values.copy_(self.adapter.initial)
        chosen = yield from (self._two_stages(task) if self.settings.two_stage else self._one_stage(task))
        self._merge(shared, chosen)
        self.ledger.claim(chosen, self.adapter.values)

    def open_rows(self, task: TaskInfo) -> Learning:
        """Draw the task's rows."""
        self.head.open_block(len(task.classes), self.generator(task, "rows"))
        yield from ()

    def _two_stages(self, task: TaskInfo) -> Choosing:
        """Stage 1 leaves no trace but the mask; Stage 2 trains inside it from the same start."""
        start = self.adapter.values.detach().clone()
        rows = [group.parameter.detach().clone() for group in self.head.groups()]
        candidates = self.candidates()
        if self.settings.mask == "learnt" and candidates.any():
            groups = [self._probe_group(candidates)]
            if self.settings.probe_head != "frozen":
                groups += self.head.groups()
            yield self.phase("probe", self.settings.probe_epochs, groups)
        chosen = yield from self._choose(task, candidates)
        self.adapter.values.copy_(start)
        if self.settings.probe_head == "copy":
            for group, values in zip(self.head.groups(), rows, strict=True):
                group.parameter.copy_(values)
        yield self.phase("train", self.settings.epochs, [Group(self.adapter.values, mask=chosen), *self.head.groups()])
        return chosen

    def _one_stage(self, task: TaskInfo) -> Choosing:
        """Train every candidate without penalty, then choose the largest changes, which alone the merge keeps."""
        candidates = self.candidates()
        groups = [Group(self.adapter.values, mask=candidates), *self.head.groups()]
        yield self.phase("train", self.settings.epochs, groups)
        return (yield from self._choose(task, candidates))

    def candidates(self) -> Tensor:
        """Mark the coordinates that this task may use."""
        everything = self.settings.mask == "none" or not self.settings.capacity_aware
        return torch.ones_like(self.ledger.free) if everything else self.ledger.free.clone()

    def _probe_group(self, candidates: Tensor) -> Group:
        """Return Stage 1's group: the candidates, pulled back towards their initial values."""
        settings, initial = self.settings, self.adapter.initial
        return Group(
            self.adapter.values,
            mask=candidates,
            penalty=Penalty(settings.penalty_weight, settings.penalty, initial),
            decay_towards=initial if settings.probe_decay == "initial" else None,
        )

    def _choose(self, task: TaskInfo, candidates: Tensor) -> Choosing:
        """Mark the coordinates of this task, and say once when none is left."""
        settings, self.movement = self.settings, None
        if settings.mask == "none":
            return candidates
        num_candidates = int(candidates.sum())
        if num_candidates == 0:
            if not self.ledger.lengths or self.ledger.lengths[-1] > 0:
                yield Notice("no free coordinates are left: from here on only the head learns new classes")
            return candidates
        if settings.capacity_aware:
            budget = budget_of(num_candidates, 1 - settings.sparsity)
        else:
            budget = budget_of(num_candidates, settings.constant_share)
        if settings.mask == "random":
            return select_random(candidates, budget, self.generator(task, "mask"))
        scores = self.adapter.movement()
        chosen = select_top(scores, candidates, budget)
        self.movement = movement_histogram(scores[candidates], smallest(scores, chosen))
        return chosen

    def _merge(self, shared: Tensor, chosen: Tensor) -> None:
        """Make the shared adapter of what it was before and what this task trained."""
        trained = self.adapter.values.detach()
        if self.settings.merge == "state":
            merged = torch.where(chosen, trained, shared)
        else:
            merged = shared + torch.where(chosen, trained - self.adapter.initial, 0.0)
        self.adapter.values.copy_(merged)

    def capacity(self) -> Capacity:
        """Return how much of the adapter is used."""
        claimed = self.ledger.lengths[-1] if self.ledger.lengths else 0
        return Capacity(self.ledger.num_coordinates, self.ledger.num_free, claimed)

    def diagnosis(self) -> dict[str, Any]:
        """Return how far Stage 1 moved the candidates, where it did, and which blocks the task's claim lies in."""
        if not self.ledger.lengths:
            return {}
        adapter, (coordinates, _) = self.adapter, self.ledger.claim_of(-1)
        return {
            **({"movement": self.movement} if self.movement else {}),
            "claimed_per_block": count_per_block(coordinates, adapter.num_blocks, adapter.block_size),
            "coordinates_per_block": adapter.block_size,
        }

    def structure(self) -> dict[str, Any]:
        """Return the base structure and the size of every task's claim."""
        return {**super().structure(), "claims": list(self.ledger.lengths)}

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for rows and claims."""
        super().rebuild(structure)
        self.ledger.resize(structure["claims"])
