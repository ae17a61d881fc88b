"""What every kind of head has: rows of finished classes, a block of rows for the task being learnt, their losses.

Shapes: B samples, K classes so far, M places in the block of the current task, D features, W numbers in a row:
D of a cosine row, D + 1 of a linear one, whose last number is its bias.
"""

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.errors import ModelError
from clare.growth import Growing
from clare.heads.drift import Drift, kernel_moves
from clare.heads.statistics import class_sums
from clare.settings import Acts, Settings
from clare.steps import Collect, Group, Learning, Pass, Solve

USUAL_SHRINKAGE = 0.2
Form = Literal["cosine", "linear"]


class HeadSettings(Settings):
    """What the settings of every kind of head have; each kind's own class stands beside its head."""

    kind: str = Field(description="How the rows of finished classes come about.")

    @property
    def row_form(self) -> Form:
        """How rows are applied to features."""
        return "cosine"

    @property
    def row_scale(self) -> float:
        """Factor on the scores in a loss and in a softmax."""
        return 1.0

    @property
    def learns_scale(self) -> bool:
        """Whether a task learns a factor of its own."""
        return False

    @abstractmethod
    def make(self, num_features: int, seed: int) -> "Head":
        """Return the head of so many features; what it draws depends on the seed alone."""


class FormSettings(HeadSettings):
    """How rows are applied to features."""

    form: Form = Field("cosine", description="Logits are cosines with the rows, or products with the rows plus a bias.")

    @property
    def row_form(self) -> Form:
        """How rows are applied to features."""
        return self.form


class ScaleSettings(HeadSettings):
    """The factor on scores, which as cosines are no larger than one."""

    acts: ClassVar[Acts] = {"scale": {"form": ("cosine",)}}

    scale: float = Field(20.0, gt=0, le=1000, description="Factor on cosines in a loss, and on scores in a softmax.")

    @property
    def row_scale(self) -> float:
        """Factor on the scores in a loss and in a softmax."""
        return self.scale if self.row_form == "cosine" else 1.0


class TrainingSettings(ScaleSettings):
    """How a task is trained with rows of its own."""

    learnt_scale: bool = Field(
        False,
        description="Learn the factor of a task's training together with its rows, from 1 on, for each task anew.",
    )

    @property
    def learns_scale(self) -> bool:
        """Whether a task learns a factor of its own."""
        return self.learnt_scale


class ShrinkageSettings(HeadSettings):
    """How covariances are made of few samples."""

    shrinkage: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        USUAL_SHRINKAGE,
        description="Weight of the identity in covariances; auto: by the number of images per feature, anew after "
        f"each task (aligned: {USUAL_SHRINKAGE}).",
    )


class Head(nn.Module, Growing, ABC):
    """Finished rows of all classes so far, and a padded block of rows for the task being learnt."""

    per_class: ClassVar[tuple[str, ...]] = ("rows", "means", "factors")
    """Tensors with a row for each class, or with none where the head has no use for them."""
    sums_products: ClassVar[bool] = False
    """Whether the sums that rows are made of hold those of outer products for each class."""
    means: Tensor
    factors: Tensor
    closed: Tensor
    follows_drift: ClassVar[bool] = True
    """Whether `carry_over` moves what is kept of earlier classes."""
    merges_exactly: ClassVar[bool] = True
    """Whether two heads that were merged are as one that saw the samples of both, but for rounding."""
    refuses: ClassVar[str] = "this model's rows were trained on pictures that are gone"
    """Why more samples of known classes are not taken, where they are not."""
    keeps_classes: bool = True
    """Whether what is kept of a class can be renewed with more samples, or dropped."""

    def __init__(self, num_features: int, settings: HeadSettings) -> None:
        super().__init__()
        self.settings, self.grows = settings, ("block", *self.per_class)
        self.num_features = num_features
        self.row_size = num_features + (settings.row_form == "linear")
        self.rows = nn.Parameter(torch.zeros(0, self.row_size), requires_grad=False)
        self.block = nn.Parameter(torch.zeros(0, self.row_size), requires_grad=False)
        if settings.learns_scale:
            self.factor = nn.Parameter(torch.ones(()), requires_grad=False)
        self.register_buffer("closed", torch.zeros(0), persistent=False)
        self.register_buffer("means", torch.zeros(0, num_features))
        self.register_buffer("factors", torch.zeros(0, num_features, num_features))

    @property
    def num_classes(self) -> int:
        """Classes with a finished row."""
        return len(self.rows)

    @property
    def scale(self) -> float:
        """Factor that turns logits over all classes into the arguments of a softmax."""
        return self.settings.row_scale

    @property
    def block_scale(self) -> float | Tensor:
        """Factor on the scores in the loss of the current task."""
        return self.factor if self.settings.learns_scale else self.settings.row_scale

    @property
    def finished_form(self) -> str:
        """How finished rows are applied to features, as an exported model must know it."""
        return self.settings.row_form

    @property
    def centres(self) -> Tensor:
        """Where the features of each class are: its mean, or its row where the head keeps no other."""
        return self.means if len(self.means) == len(self.rows) else self.rows.data

    @property
    def directions(self) -> Tensor:
        """Rows of all classes so far that compare with those of the block."""
        return self.rows.data

    def seen(self, features: Tensor) -> Tensor:
        """Return features as the statistics of classes take them."""
        return features

    def scores(self, features: Tensor, rows: Tensor) -> Tensor:
        """Return cosines with the rows, or products with them plus their biases, in the precision of the rows."""
        # Half precision has steps of 0.004 near one, in which the cosines of many classes tie.
        with torch.autocast(rows.device.type, enabled=False):
            features = features.to(rows.dtype)
            if self.settings.row_form == "cosine":
                return F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T
            return F.linear(features, rows[:, :-1], rows[:, -1])

    def logits(self, features: Tensor) -> Tensor:
        """Return the scores of all classes so far, shape (B, K)."""
        return self.scores(features, self.rows)

    def block_logits(self, features: Tensor) -> Tensor:
        """Return the scaled scores of the current task's classes, shape (B, M); places without a class are closed."""
        return self.block_scale * self.scores(features, self.block) + self.closed

    def block_loss(self, features: Tensor, labels: Tensor, margin: float = 0.0) -> Tensor:
        """Return each sample's cross-entropy over the classes of the current task, with a margin off the true score."""
        logits = self.block_logits(features)
        if margin:
            logits = margin_logits(logits, labels, margin * self.block_scale)
        return F.cross_entropy(logits, labels, reduction="none")

    def row_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over all classes so far."""
        return F.cross_entropy(self.scale * self.logits(features), labels, reduction="none")

    def open_block(self, num_new: int, generator: torch.Generator) -> None:
        """Draw fresh rows for a task; the block keeps its size when it is large enough, so shapes stay the same."""
        self.reserve(num_new)
        bound = 1 / math.sqrt(self.num_features)
        rows = torch.empty(self.block.shape).uniform_(-bound, bound, generator=generator)
        self.block.data.copy_(rows)
        self.closed.zero_()
        self.closed[num_new:] = -math.inf
        if self.settings.learns_scale:
            self.factor.data.fill_(1)

    def groups(self) -> list[Group]:
        """Return what a task trains of the head: its block, and its factor where that is learnt."""
        return [Group(self.block), *([Group(self.factor)] if self.settings.learns_scale else [])]

    def reserve(self, num_rows: int) -> None:
        """Make the block hold at least this many rows; known in advance, its shape never changes between tasks."""
        if num_rows > len(self.block):
            self.block = nn.Parameter(self.rows.new_zeros(num_rows, self.row_size), requires_grad=False)
        if len(self.closed) != len(self.block):
            self.closed = self.rows.new_zeros(len(self.block))

    def append(self, rows: Tensor) -> None:
        """Add the rows of finished classes."""
        self.rows = nn.Parameter(torch.cat([self.rows.data, rows.to(self.rows)]), requires_grad=False)

    @torch.no_grad()
    def forget(self, place: int) -> None:
        """Let a class go with its row and its own statistics; sums that all classes share keep its samples."""
        for name in self.per_class:
            tensor = getattr(self, name)
            if len(tensor):
                kept = torch.cat([tensor[:place], tensor[place + 1 :]])
                setattr(self, name, nn.Parameter(kept, requires_grad=False) if name == "rows" else kept)

    def carry_over(self, drift: Drift) -> None:
        """Move what is kept of earlier classes to where a task's training took their features, if it can be moved."""

    def follow_shift(self, before: Tensor, after: Tensor, width: float) -> Learning:
        """Move what is kept of earlier classes as the images near them moved."""
        start, end = self.seen(before), self.seen(after)
        self.carry_over((yield Solve("shift", lambda: {"moves": kernel_moves(start, end, self.centres, width)})))

    @abstractmethod
    def finish(self, num_new: int) -> Learning:
        """Turn the task's block into finished rows."""

    def finish_untrained(self, num_new: int) -> Learning:
        """Make rows of new classes without any training of the task."""
        yield from self.finish(num_new)

    def renew(self, places: Tensor, counts: Tensor, sums: dict[str, Tensor]) -> Learning:
        """Take over the sums of more samples of known classes, of which there were so many before, or refuse."""
        raise self.refusal()
        yield

    def refusal(self) -> ModelError:
        """Say why more samples of known classes are not taken."""
        return ModelError(
            f"{self.refuses}, so more pictures cannot be added to them; "
            "make models with head.kind = prototype, aligned, discriminant, quadratic or ridge for that"
        )

    def merge(self, other: "Head", places: Tensor, before: Tensor, counts: Tensor) -> None:
        """Take over what another head of this kind knows: its classes go to these places, new ones in turn behind ours.

        The classes of both were made of so many samples, `before` ours and `counts` the other's.
        """
        raise ModelError(
            f"a head of kind '{self.settings.kind}' keeps no sums that add up, so models with it cannot be merged; "
            "make models with head.kind = prototype, discriminant, quadratic or ridge for that"
        )

    def sweep(self, num_classes: int) -> Pass | Collect:
        """Return the sweep over the images of so many classes of which `summed` makes the sums."""

        def statistic(features: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
            return self.statistic(features, labels, weights, num_classes)

        return Pass("statistics", statistic)

    def summed(self, found: dict[str, Tensor], num_classes: int) -> dict[str, Tensor]:
        """Return the sums that rows are made of, out of what the sweep found."""
        return found

    def statistic(self, features: Tensor, labels: Tensor, weights: Tensor, num_classes: int) -> dict[str, Tensor]:
        """Return the sums over a batch that the rows are made of: count, sum and maybe products per class."""
        return class_sums(self.seen(features), labels, weights, num_classes, outer=self.sums_products)

    def packed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what a model folder keeps of the head's tensors."""
        return tensors

    def unpacked(self, saved: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return saved tensors in full."""
        return saved


def margin_logits(logits_BK: Tensor, labels_B: Tensor, margin: float | Tensor) -> Tensor:
    """Return logits of which the true one is lower by a margin: CosFace, where they are scaled cosines."""
    # Where a step is recorded, `one_hot` would look at the labels on the host.
    is_true_BK = labels_B[:, None] == torch.arange(logits_BK.shape[1], device=labels_B.device)
    return logits_BK - margin * is_true_BK.to(logits_BK)
