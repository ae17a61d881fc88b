"""CLARE: each task finds, trains and freezes a sparse set of the shared adapter's coordinates.

Fu, Lou, Liao, Yu: "CLARE: Scalable Class-Incremental Continual Learning via a Sparsity-Based Framework".
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.contrast import Contrast, Over
from clare.methods._shared.adapted import AdaptedMethod, AdaptedSettings
from clare.methods._shared.need import PARTS, Trust, find_likeness, find_part
from clare.methods._shared.recipe import ContrastMethod
from clare.methods.base import register
from clare.methods.protocols import ClaimsCoordinates, Diagnoses, HasStructure
from clare.settings import Acts
from clare.sparse.allocator import Allocator
from clare.sparse.diagnosis import count_claim, count_per_block, movement_histogram, smallest
from clare.sparse.gates import Gates
from clare.sparse.ledger import Ledger
from clare.sparse.select import budget_of, select_random
from clare.sparse.update import MergeForm, PenaltyForm
from clare.steps import Choosing, Collect, Group, Learning, Notice, Penalty, Phase, TaskInfo

MOVABLE = ("prototype", "aligned", "discriminant", "quadratic", "realigned")
"""Heads that keep means of classes."""
SOME = ("learnt", "random")
"""Masks that leave coordinates out."""


class ClareSettings(AdaptedSettings):
    """The paper's hyper-parameters, and one setting for each variant it measures."""

    acts: ClassVar[Acts] = {
        "sparsity": {"capacity_aware": (True,), "mask": SOME},
        "constant_share": {"capacity_aware": (False,), "mask": SOME},
        "capacity_aware": {"mask": SOME},
        "trust": {"merge": ("state",), "head.kind": MOVABLE},
        "expand": {"capacity_aware": (True,), "mask": SOME},
        "expand_below": {"capacity_aware": (True,), "mask": SOME, "expand": ("fresh", "wider")},
        **{key: {"mask": ("learnt",)} for key in ("origin", "select_unmoved")},
        **{
            key: {"mask": ("learnt",), "two_stage": (True,)}
            for key in ("budget", "probe_epochs", "penalty_weight", "penalty", "probe_decay", "probe_head")
        },
        "penalty_turn": {"mask": ("learnt",), "two_stage": (True,), "penalty": ("transformed-l1",)},
    }

    sparsity: float = Field(0.95, ge=0, lt=1, description="Share of the free coordinates that a task leaves free.")
    budget: Literal["share", "auto"] = Field(
        "share",
        description="What a task claims: all of its share, or as much of it as Stage 1 shows that it needs.",
    )
    probe_epochs: int = Field(5, ge=1, le=10_000, description="Epochs of Stage 1, which finds the mask.")
    penalty_weight: float = Field(1e-4, ge=0, le=10, description="Weight of the Stage-1 penalty on movement.")
    penalty: PenaltyForm = Field(
        "l1-proximal",
        description="Form of the Stage-1 penalty; the paper's text reads as l1-subgradient. group-lasso takes hidden "
        "units as groups, l0 counts coordinates by hard-concrete gates.",
    )
    penalty_turn: float = Field(
        1.0, gt=0, le=1000, description="Movement at which the penalty transformed-l1 has half of its limit."
    )
    probe_decay: Literal["initial", "zero"] = Field(
        "initial", description="Where weight decay pulls in Stage 1: to `origin`, or to zero, which biases the scores."
    )
    probe_head: Literal["copy", "keep", "frozen"] = Field(
        "copy", description="Rows in Stage 1: a throw-away copy, kept for Stage 2, or held at their initial values."
    )
    contrast: Over = Field(
        "task", description="Classes in the loss: the task's, or all so far with earlier rows fixed or trained as well."
    )
    origin: Literal["initial", "start", "zero"] = Field(
        "initial",
        description="What Stage 1's penalty and the score measure movement from: the initial values, where the task's "
        "training started, or zero, so that values count and not changes.",
    )
    select_unmoved: bool = Field(
        False, description="Take every candidate where the threshold is zero, as printed, not only those that moved."
    )
    mask: Literal["learnt", "random", "none"] = Field(
        "learnt", description="Coordinates that moved most in Stage 1, as many at random, or every coordinate."
    )
    capacity_aware: bool = Field(
        True, description="Budget from what is free; otherwise a constant share of all, overlap allowed."
    )
    constant_share: float = Field(0.05, gt=0, le=1, description="Share of all coordinates per task.")
    expand: Literal["none", "fresh", "wider"] = Field(
        "none",
        description="When the pool runs low: go on with what is left, freeze it and put a fresh adapter beside it, "
        "or widen the bottleneck until as much is free as at first.",
    )
    expand_below: float = Field(
        0.5, gt=0, lt=1, description="Expand before a task that would find less free than this part of the first pool."
    )
    trust: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of earlier classes' accuracy that a task may cost, estimated from kept means and its own "
        "images; one that costs more goes only a part of its way, or is taken back (1: no limit).",
    )
    two_stage: bool = Field(True, description="Train anew inside the mask of Stage 1, or keep the largest changes.")
    start: Literal["shared", "initial"] = Field(
        "shared", description="Where training starts: the shared adapter, or its initial values (independent tuning)."
    )
    merge: MergeForm = Field(
        "state",
        description="Keep the trained values, or add deltas as printed, which counts twice where masks overlap.",
    )


@register
class Clare(AdaptedMethod, ContrastMethod, ClaimsCoordinates, HasStructure, Diagnoses):
    """One adapter, one head, disjoint sparse masks."""

    name = "clare"
    summary = "finds, trains and freezes a sparse set of free adapter coordinates for each task"
    family = "adapters"
    tiny: ClassVar[dict[str, Any]] = {"probe_epochs": 2}
    fixed_shapes = True
    keeps_initial = True
    settings: ClareSettings

    def __init__(self, backbone: Backbone, settings: ClareSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.ledger = Ledger(self.adapter.values.numel())
        self.contrast = Contrast(self.head.row_size, settings.contrast)
        self.gates = Gates(self.adapter.values.numel()) if settings.penalty == "l0" else None
        self.found: dict[str, Any] = {}

    @property
    def pool(self) -> Allocator:
        """The adapter's coordinates, and who has claimed which."""
        return Allocator({"adapter": self.adapter.values}, self.adapter.initial, self.ledger)

    @property
    def room(self) -> int:
        """Return the room for earlier rows, which grows where their number is unknown, and for coordinates."""
        return super().room + self.adapter.values.numel()

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the classes to tell apart."""
        return self.contrast.loss(self.head, self.features(images), labels)

    def gated_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's loss behind gates drawn for this batch."""
        assert self.gates is not None
        with self.adapter.replaced(self.gates.sampled(self.adapter.values)):
            return self.loss(images, labels)

    def learn(self, task: TaskInfo) -> Learning:
        """Find the mask, learn within it, merge, and freeze it; then finish the head."""
        yield from self.adapt(task)
        yield from self.head.finish(len(task.classes))

    def adapt(self, task: TaskInfo) -> Learning:
        """Learn the task in coordinates of its own, which are frozen from then on."""
        self.found = {}
        yield from self._expand(task)
        shared, trust = self.adapter.values.detach().clone(), None
        if self.settings.trust < 1 and self.head.follows_drift and self.head.num_classes:
            before = yield Collect("trusted features", self.features)
            trust = Trust(self.settings.trust, self.follows(), shared, before)
        yield from self.open_rows(task)
        if self.settings.start == "initial":
            self.adapter.values.copy_(self.adapter.initial)
        start = self.adapter.values.detach().clone()
        origin = {"initial": self.adapter.initial, "start": start, "zero": torch.zeros_like(start)}
        stages = self._two_stages if self.settings.two_stage else self._one_stage
        chosen = yield from stages(task, start, origin[self.settings.origin])
        if trust:
            chosen = yield from trust.hold(self, self.adapter, chosen)
            self.found["trust"] = trust.found
        self.pool.claim(chosen, shared, self.settings.merge, overlap=True)
        self.contrast.give_back(self.head)

    def follows(self) -> bool:
        """Tell whether what is kept of earlier classes moves along with the features."""
        return False

    def _expand(self, task: TaskInfo) -> Learning:
        """Make the pool larger where what tasks have claimed leaves too little of it for this one."""
        settings, bottleneck = self.settings, self.settings.adapter.bottleneck
        first = sum(self.adapter.block_sizes[: self.adapter.num_blocks])
        free = self.ledger.num_free / first
        if settings.expand == "none" or self.is_free_for_all or free >= settings.expand_below:
            return
        is_fresh = settings.expand == "fresh"
        hidden = bottleneck if is_fresh else math.ceil(bottleneck * (1 - free))
        self.ledger.grow(self.adapter.grow(hidden, task.generator("expand")), retires=is_fresh)
        what = "a fresh adapter stands beside those that are full" if is_fresh else "the adapter is wider"
        yield Notice(f"{what}: {hidden} more hidden units in each block, {sum(self.adapter.bottlenecks)} in all")

    def open_rows(self, task: TaskInfo) -> Learning:
        """Draw the task's rows, beside those of earlier tasks."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        self.contrast.take(self.head)
        yield from ()

    def row_groups(self) -> list[Group]:
        """Return the rows that a task trains: its own, and earlier ones where the loss trains those."""
        return [*self.head.groups(), *self.contrast.groups()]

    def _two_stages(self, task: TaskInfo, start: Tensor, origin: Tensor) -> Choosing:
        """Stage 1 leaves no trace but the mask; Stage 2 trains inside it from the same start."""
        rows = [group.parameter.detach().clone() for group in self.row_groups()]
        candidates, is_auto = self.candidates(), self.settings.budget == "auto" and self.settings.mask == "learnt"
        if is_auto:
            self.found["likeness"] = yield from find_likeness(self.adapter, self.loss, ~self.ledger.free)
        if self.settings.mask == "learnt" and candidates.any():
            trained_rows = [] if self.settings.probe_head == "frozen" else self.row_groups()
            groups = [*self._probed(candidates, origin), *trained_rows]
            phase = self.phase("probe", self.settings.probe_epochs, groups)
            yield phase if self.gates is None else replace(phase, loss=self.gated_loss)
        chosen = yield from self._choose(task, candidates, origin, start if is_auto else None)
        self.adapter.values.copy_(start)
        if self.settings.probe_head == "copy":
            for group, values in zip(self.row_groups(), rows, strict=True):
                group.parameter.copy_(values)
        yield self._train(chosen)
        return chosen

    def _one_stage(self, task: TaskInfo, _: Tensor, origin: Tensor) -> Choosing:
        """Train every candidate without penalty, then choose the largest changes, which alone the merge keeps."""
        candidates = self.candidates()
        yield self._train(candidates)
        return (yield from self._choose(task, candidates, origin))

    def _train(self, mask: Tensor) -> Phase:
        """Ask for the training without penalty of these coordinates and the rows."""
        return self.phase("train", self.settings.epochs, [Group(self.adapter.values, mask=mask), *self.row_groups()])

    def candidates(self) -> Tensor:
        """Mark the coordinates that this task may use."""
        return torch.ones_like(self.ledger.free) if self.is_free_for_all else self.ledger.free.clone()

    def _probed(self, candidates: Tensor, origin: Tensor) -> list[Group]:
        """Return Stage 1's groups: the candidates, pulled back towards where movement is measured from, or gates."""
        settings = self.settings
        norms = self.adapter.unit_norms if settings.penalty == "group-lasso" else None
        penalty = Penalty(settings.penalty_weight, settings.penalty, origin, settings.penalty_turn, norms)
        decay_towards = origin if settings.probe_decay == "initial" else None
        values = Group(self.adapter.values, candidates, penalty, decay_towards)
        if self.gates is None:
            return [values]
        self.gates.begin(origin, candidates)
        counted = replace(penalty, anchor=torch.zeros_like(origin))
        return [replace(values, penalty=None), Group(self.gates.trained, candidates, counted)]

    def _choose(self, task: TaskInfo, candidates: Tensor, origin: Tensor, start: Tensor | None = None) -> Choosing:
        """Mark the coordinates of this task, fewer than its share where a start is given and fewer are enough."""
        settings = self.settings
        if settings.mask == "none":
            return candidates
        num_candidates = int(candidates.sum())
        if num_candidates == 0:
            if not self.ledger.lengths or self.ledger.lengths[-1] > 0:
                yield Notice("no free coordinates are left: from here on only the head learns new classes")
            return candidates
        share = 1 - settings.sparsity if settings.capacity_aware else settings.constant_share
        if settings.mask == "random":
            return select_random(candidates, budget_of(num_candidates, share), task.generator("mask"))
        values = self.adapter.values.detach()
        values = values if self.gates is None else self.gates.settled(values)
        scores = (values - origin).abs()

        def choose(part: float) -> Tensor:
            return self.pool.choose(scores, candidates, part * share, settings.select_unmoved)

        chosen = choose(1.0)
        if start is not None:
            masks = [*map(choose, PARTS[:-1]), chosen]
            part = self.found["needed"] = yield from find_part(self.adapter, self.loss, start, values, masks)
            chosen = choose(part * (1 - self.found["likeness"]))
        self.found["movement"] = movement_histogram(scores[candidates], smallest(scores, chosen))
        return chosen

    def claims_by_layer(self) -> list[list[int]]:
        """Return how many coordinates each task claimed in each block."""
        claims = (self.ledger.claim_of(task)[0] for task in range(len(self.ledger.lengths)))
        return [count_per_block(claim, self.adapter.num_blocks, self.adapter.block_sizes) for claim in claims]

    @property
    def is_free_for_all(self) -> bool:
        """Whether every task may use every coordinate."""
        return self.settings.mask == "none" or not self.settings.capacity_aware

    @property
    def share_left_free(self) -> float | None:
        """The sparsity; none where every task may use every coordinate, or the pool is expanded before it is empty."""
        return None if self.is_free_for_all or self.settings.expand != "none" else self.settings.sparsity

    def diagnosis(self) -> dict[str, Any]:
        """Return how far Stage 1 moved the candidates, where it did, and which blocks the task's claim lies in."""
        placed = count_claim(self.ledger, self.adapter.num_blocks, self.adapter.block_sizes)
        return {**self.found, **placed}

    def structure(self) -> dict[str, Any]:
        """Return the size of every task's claim, and the bottlenecks of adapters where several are side by side."""
        bottlenecks = list(self.adapter.bottlenecks)
        return {"claims": list(self.ledger.lengths), **({"bottlenecks": bottlenecks} if len(bottlenecks) > 1 else {})}

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for adapters and claims."""
        self.adapter.resize(structure.get("bottlenecks", [self.settings.adapter.bottleneck]))
        self.ledger.resize(structure["claims"], self.adapter.values.numel())
