"""A classifier that grows by the rows of each task, and three ways its new rows come about.

Shapes: B samples, K classes so far, M places in the block of the current task, D features, W numbers in a row:
D of a cosine row, D + 1 of a linear one, whose last number is its bias.
"""

import math
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from clare.heads.drift import Drift, moved, stretched
from clare.heads.statistics import class_means, class_sums, gaussian_factors
from clare.settings import Settings
from clare.steps import Group, Learning, Pass, Phase, Sgd

USUAL_SHRINKAGE = 0.2
Strategy = Literal["trained", "prototype", "aligned", "discriminant", "quadratic", "projected"]


class HeadSettings(Settings):
    """How the classifier's rows are made."""

    form: Literal["cosine", "linear"] = Field(
        "cosine", description="Logits are cosines with the rows, or products with the rows plus a bias."
    )
    strategy: Strategy = Field(
        "prototype",
        description="Rows as training left them, class means of the finished adapter's features, "
        "rows re-trained on features drawn from one Gaussian per class, "
        "the linear discriminant of class means and one covariance of all classes, "
        "the quadratic one, in which each class has a covariance of its own as well, "
        "or ridge regression on random features.",
    )
    read_blocks: int = Field(
        1,
        ge=1,
        le=1000,
        description="Blocks, counted from the last, whose class tokens stand side by side as features.",
    )
    read_patches: bool = Field(
        False, description="Put the mean of the patch tokens beside the class token of each block that is read."
    )
    read_centre: bool = Field(
        False,
        description="Take that mean over the middle of the image: without a quarter of the patches, rounded down, on "
        "every side.",
    )
    read_looks: int = Field(
        1,
        ge=1,
        le=16,
        description="Looks at an image that is classified or counted, whose features are averaged: the whole image, "
        "then ever closer, up to its middle four sevenths.",
    )
    scale: float = Field(
        20.0, gt=0, le=1000, description="Factor on cosines in the training loss, and on projected scores in a softmax."
    )
    learnt_scale: bool = Field(
        False,
        description="Learn the factor of a task's training together with its rows, from 1 on, for each task anew.",
    )
    align_epochs: int = Field(10, ge=1, le=1000, description="Epochs of re-training the rows (aligned).")
    align_samples: int = Field(64, ge=1, le=100_000, description="Features drawn per class and epoch (aligned).")
    align_learning_rate: float = Field(
        0.1, gt=0, le=100, description="Learning rate of re-training the rows (aligned)."
    )
    align_batch_size: int = Field(256, ge=1, le=1_000_000, description="Batch size of re-training the rows (aligned).")
    shrinkage: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        USUAL_SHRINKAGE,
        description="Weight of the identity in covariances (aligned, discriminant, quadratic); auto: by how many "
        "images there are to a feature, after each task anew (aligned: 0.2).",
    )
    own_share: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = Field(
        0.1,
        description="Weight of a class's own covariance beside that of all classes (quadratic); auto: by how many "
        "images there are to a class.",
    )
    num_directions: int = Field(
        32, ge=1, le=10_000, description="Directions, the leading ones, of a class's own covariance (quadratic)."
    )
    num_projected: int = Field(4000, ge=1, le=100_000, description="Random features of an image (projected).")
    ridge_share: float = Field(
        0.1,
        gt=0,
        le=1000,
        description="Ridge in units of the mean over random features of their sum of squares (projected).",
    )

    @property
    def reads_usual(self) -> bool:
        """Whether features are what the backbone ends with at one look, as in its pretraining."""
        return self.read_blocks == 1 and not self.read_patches and self.read_looks == 1

    @property
    def class_shrinkage(self) -> float:
        """Weight of the identity in the covariance of one class by itself, for which there is no rule."""
        return USUAL_SHRINKAGE if self.shrinkage == "auto" else self.shrinkage

    @model_validator(mode="after")
    def _centre_is_of_patches(self) -> "HeadSettings":
        """Refuse the middle of patches that are not read."""
        if self.read_centre and not self.read_patches:
            raise ValueError(
                "read_centre is true, but no patches are read; set read_patches to true or read_centre to false"
            )
        return self

    @model_validator(mode="after")
    def _rows_fit_the_form(self) -> "HeadSettings":
        """Refuse class means as the rows of a linear head."""
        if self.form == "linear" and self.strategy == "prototype":
            raise ValueError(
                "the strategy is prototype, but class means are no linear rows; "
                "use trained, aligned, discriminant, quadratic, projected"
            )
        return self


class LinearHeadSettings(HeadSettings):
    """A linear classifier whose rows stay as they were trained."""

    form: Literal["cosine", "linear"] = Field(
        "linear", description="Logits are cosines with the rows, or products with the rows plus a bias."
    )
    strategy: Strategy = Field(
        "trained",
        description="Rows as training left them, class means (cosine form only), "
        "rows re-trained on features drawn from one Gaussian per class, "
        "the linear discriminant of class means and one covariance of all classes, "
        "the quadratic one, in which each class has a covariance of its own as well, "
        "or ridge regression on random features.",
    )


class Head(nn.Module):
    """Finished rows of all classes so far, and a padded block of rows for the task being learnt."""

    per_class: ClassVar[tuple[str, ...]] = ("rows", "means", "factors")
    """Tensors with a row for each class, or with none where the head has no use for them."""
    means: Tensor
    factors: Tensor
    closed: Tensor

    def __init__(self, num_features: int, settings: HeadSettings) -> None:
        super().__init__()
        self.settings = settings
        self.num_features = num_features
        self.row_size = num_features + (settings.form == "linear")
        self.rows = nn.Parameter(torch.zeros(0, self.row_size), requires_grad=False)
        self.block = nn.Parameter(torch.zeros(0, self.row_size), requires_grad=False)
        if settings.learnt_scale:
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
        return self._training_scale

    @property
    def _training_scale(self) -> float:
        return self.settings.scale if self.settings.form == "cosine" else 1.0

    @property
    def block_scale(self) -> float | Tensor:
        """Factor on the scores in the loss of the current task."""
        return self.factor if self.settings.learnt_scale else self._training_scale

    @property
    def follows_drift(self) -> bool:
        """Whether `carry_over` moves what is kept of earlier classes; of trained rows nobody knows where to."""
        return self.settings.strategy != "trained"

    @property
    def finished_form(self) -> str:
        """How finished rows are applied to features, as an exported model must know it."""
        return self.settings.form

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
            if self.settings.form == "cosine":
                return F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T
            return F.linear(features, rows[:, :-1], rows[:, -1])

    def logits(self, features: Tensor) -> Tensor:
        """Return the scores of all classes so far, shape (B, K)."""
        return self.scores(features, self.rows)

    def block_logits(self, features: Tensor) -> Tensor:
        """Return the scaled scores of the current task's classes, shape (B, M); places without a class are closed."""
        return self.block_scale * self.scores(features, self.block) + self.closed

    def block_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the classes of the current task alone."""
        return F.cross_entropy(self.block_logits(features), labels, reduction="none")

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
        if self.settings.learnt_scale:
            self.factor.data.fill_(1)

    def groups(self) -> list[Group]:
        """Return what a task trains of the head: its block, and its factor where that is learnt."""
        return [Group(self.block), *([Group(self.factor)] if self.settings.learnt_scale else [])]

    def reserve(self, num_rows: int) -> None:
        """Make the block hold at least this many rows; known in advance, its shape never changes between tasks."""
        if num_rows > len(self.block):
            self.block = nn.Parameter(self.rows.new_zeros(num_rows, self.row_size), requires_grad=False)
            self.closed = self.rows.new_zeros(num_rows)

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
        """Move class means and covariances of earlier classes to where a task's training took them."""
        if self.settings.strategy == "aligned":
            self.means, self.factors = moved(self.means, drift), stretched(self.factors, drift)
        elif self.settings.strategy == "prototype":
            self.rows.data.copy_(moved(self.rows.data, drift))

    def finish(self, num_new: int) -> Learning:
        """Turn the task's block into finished rows by the chosen strategy."""
        settings = self.settings
        if settings.strategy == "trained":
            self.append(self.block.data[:num_new])
            return

        def statistic(features: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
            return class_sums(features, labels, weights, num_new, outer=settings.strategy == "aligned")

        sums = yield Pass("statistics", statistic)
        self.append(class_means(sums) if settings.form == "cosine" else self.block.data[:num_new])
        if settings.strategy == "aligned":
            self.means = torch.cat([self.means, class_means(sums).to(self.means)])
            self.factors = torch.cat([self.factors, gaussian_factors(sums, settings.class_shrinkage).to(self.factors)])
            yield self._alignment()

    def _alignment(self) -> Phase:
        """Ask for a training of all rows on features drawn from the class Gaussians; cosine rows start at the means."""
        settings = self.settings
        if settings.form == "cosine":
            self.rows.data.copy_(F.normalize(self.means, dim=1))
        return Phase(
            "align",
            settings.align_epochs,
            [Group(self.rows)],
            self.row_loss,
            Sgd(settings.align_learning_rate),
            settings.align_batch_size,
            GaussianFeatures(self.means, self.factors, settings.align_samples),
        )

    def resize(self, num_classes: int, block_size: int) -> None:
        """Make room for saved rows before they are loaded; a block of the right size stays where it is."""
        size = self.num_features
        if block_size != len(self.block):
            self.block = nn.Parameter(self.rows.new_zeros(block_size, self.row_size), requires_grad=False)
            self.closed = self.rows.new_zeros(block_size)
        self.rows = nn.Parameter(self.rows.new_zeros(num_classes, self.row_size), requires_grad=False)
        num_gaussians = num_classes if self.settings.strategy == "aligned" else 0
        self.means = self.means.new_zeros(num_gaussians, size)
        self.factors = self.factors.new_zeros(num_gaussians, size, size)


class GaussianFeatures:
    """Features drawn afresh for every epoch from one Gaussian per class, the same number for each class."""

    def __init__(self, means: Tensor, factors: Tensor, samples_per_class: int) -> None:
        self.means, self.factors = means, factors
        self.samples_per_class = samples_per_class
        self.num_samples = len(means) * samples_per_class
        self.device = means.device
        self.features = means.new_zeros(0)

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw the features of an epoch, all samples of a class with one matrix product."""
        num_classes, size = self.means.shape
        noise = torch.randn(num_classes, self.samples_per_class, size, generator=generator).to(self.means)
        self.features = (self.means[:, None] + noise @ self.factors.mT).flatten(0, 1)

    def draw(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features at these positions and their classes."""
        return self.features[positions], positions // self.samples_per_class
