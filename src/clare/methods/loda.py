"""LoDA: low-rank updates along directions that old and new inputs share, and along those that only new ones use.

"LoDA: Low-rank Decomposition and Adaptation" (ICML 2026, arXiv 2603.00191). Shapes: L blocks, D width, R rank.
"""

import math
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.heads.kinds import AnyHead
from clare.heads.trained import TrainedSettings
from clare.methods._shared.low_rank import LowRankMethod
from clare.methods._shared.recipe import MarginMethod, MarginSettings
from clare.methods.base import register
from clare.steps import Agreement, Group, Learning, Solve, TaskInfo
from clare.tuners.lora import QkvLora

SHARED_SHARE, OWN_SHARE = 0.25, 0.5
"""Factors on the two updates."""


class LodaSettings(MarginSettings):
    """The authors' hyper-parameters on CIFAR-100."""

    defaults: ClassVar[Any] = {"batch_size": 48, "learning_rate": 0.005}
    head: AnyHead = Field(TrainedSettings(), description="The classifier.")
    rank: int = Field(32, ge=1, le=4096, description="Rank of each of the two updates.")
    reach: float = Field(
        0.3,
        ge=0,
        le=100,
        description="How far, at most, a step looks along the gradient of the other half of the classes; 0 takes plain "
        "steps.",
    )
    recalibration: float = Field(
        3.0, gt=0, le=1e6, description="Weight of new inputs beside old ones in what is kept of the shared update."
    )
    as_published: bool = Field(
        False, description="Add a task's moments twice to those of earlier tasks, as the authors' code does."
    )


@register
class Loda(MarginMethod, LowRankMethod):
    """Two low-rank updates of all projections to queries, keys and values, merged after every task."""

    name = "loda"
    summary = "trains low-rank updates along directions that tasks share and along those that the new one has alone"
    family = "LoRA"
    tiny: ClassVar[dict[str, Any]] = {"rank": 2, "head": {"scale": 5.0}}
    fixed_shapes = True
    settings: LodaSettings
    moments: Tensor

    def __init__(self, backbone: Backbone, settings: LodaSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.lora = QkvLora(backbone.vit, settings.rank, ("q", "k", "v"), shared_down=True)
        self.own_down = nn.Parameter(torch.zeros_like(self.lora.down), requires_grad=False)
        self.own_up = nn.Parameter(torch.zeros_like(self.lora.up), requires_grad=False)
        self.register_buffer("merged", self.lora.product())
        num_blocks, width = len(self.lora.down), self.lora.down.shape[-1]
        self.register_buffer("moments", torch.zeros(num_blocks, width, width, dtype=torch.float64))

    def update(self) -> Tensor:
        """Return what is added to the projections, shape (L, 3, D, D)."""
        return self.merged + SHARED_SHARE * self.lora.product() + OWN_SHARE * (self.own_up @ self.own_down)

    def learn(self, task: TaskInfo) -> Learning:
        """Find the directions, train the updates along them, merge them, and remember the task's inputs."""
        settings, is_first = self.settings, not self.tasks
        self.head.open_block(len(task.classes), task.generator("rows"))
        before = yield self.input_moments("inputs before")
        solved = yield Solve("directions", lambda: self._directions(moment_of(before)))
        self.lora.down.copy_(solved["shared"])
        self.own_down.copy_(solved["own"])
        trained = (self.lora.down, self.lora.up) if is_first else (self.lora.up, self.own_up)
        groups = [*(Group(parameter) for parameter in trained), *self.head.groups()]
        agreement = Agreement(settings.reach, trained, len(self.head.block)) if settings.reach else None
        yield self.phase("train", settings.epochs, groups, agreement=agreement)
        trained_on = yield self.input_moments("inputs of the trained")
        self._merge(moment_of(trained_on))
        if settings.as_published:
            self.moments.add_(moment_of(trained_on))
        after = yield self.input_moments("inputs after")
        self.moments.add_(moment_of(after))
        yield from self.head.finish(len(task.classes))

    def _directions(self, moments: Tensor) -> dict[str, Tensor]:
        """Return both down-projections of every block, shape (L, 1, R, D); the first task has nothing of its own."""
        rank = self.settings.rank
        shared = torch.stack([leading(moment, rank) for moment in moments + self.moments])
        own = torch.zeros_like(shared)
        if self.tasks:
            pairs = zip(self.moments, moments, strict=True)
            own = torch.stack([exclusive(old, new, rank) for old, new in pairs])
        return {"shared": shared[:, None].to(self.lora.down), "own": own[:, None].to(self.lora.down)}

    def _merge(self, moments: Tensor) -> None:
        """Add both updates to the merged ones, of the shared one what does not disturb the inputs of earlier tasks."""
        down = self.lora.down.data
        shares = kept_shares(down[:, 0], self.moments, moments, self.settings.recalibration).to(down)
        shared = (self.lora.up * shares[:, None, None]) @ down
        self.merged.add_(SHARED_SHARE * shared + OWN_SHARE * (self.own_up @ self.own_down))
        self.lora.up.zero_()
        self.own_up.zero_()


def moment_of(found: dict[str, Tensor]) -> Tensor:
    """Return the mean of the images' second moments, shape (L, D, D)."""
    return found["moments"] / found["count"]


def leading(moment: Tensor, rank: int) -> Tensor:
    """Return the leading directions of inputs, as rows of length 1 / sqrt(3)."""
    directions: Tensor = torch.linalg.svd(moment)[0][:, :rank]
    return directions.T / math.sqrt(3)


def exclusive(old: Tensor, new: Tensor, rank: int) -> Tensor:
    """Return the directions that new inputs use most beside old ones, as orthogonal rows of length 1 / sqrt(3)."""
    root = root_of(old)
    half = torch.linalg.solve_triangular(root, new, upper=False)
    ratio = torch.linalg.solve_triangular(root, half.T, upper=False)
    directions: Tensor = torch.linalg.solve_triangular(root.T, torch.linalg.svd(ratio)[0][:, :rank], upper=True)
    basis: Tensor = torch.linalg.qr(directions)[0]
    return basis.T / math.sqrt(3)


def root_of(moment: Tensor) -> Tensor:
    """Return the Cholesky factor of a moment, with the least ridge of powers of ten that lets it have one."""
    identity, ridge = torch.eye(len(moment), dtype=moment.dtype, device=moment.device), 1e-12
    while True:
        root: Tensor
        root, failed = torch.linalg.cholesky_ex(moment)
        if not bool(failed):
            return root
        moment, ridge = moment + ridge * identity, 10 * ridge


def kept_shares(down: Tensor, old: Tensor, new: Tensor, weight: float) -> Tensor:
    """Return how much of the update along each direction is kept, shape (L, R): less where old inputs are strong."""
    rows = down.double()
    strengths = [torch.einsum("lrd,lde,lre->lr", rows, moment, rows).clamp(min=0) for moment in (old, new)]
    return 1 - strengths[0] / (strengths[0] + weight * strengths[1] + 1e-12)
