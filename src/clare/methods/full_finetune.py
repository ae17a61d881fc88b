"""Fine-tuning of the backbone's own weights, all of them or a sparse share: Figure 1 of CLARE's paper.

Fu, Lou, Liao, Yu: "CLARE: Scalable Class-Incremental Continual Learning via a Sparsity-Based Framework".
"""

from typing import Any, ClassVar, Literal

import torch
from annotated_types import Lt
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.recipe import RecipeMethod, RecipeSettings
from clare.methods.base import register
from clare.methods.protocols import Deployed, Deploys, Diagnoses, KeepsRowsAlone
from clare.settings import Acts
from clare.sparse.diagnosis import LARGE, movement_histogram, smallest
from clare.sparse.select import budget_of, select_random, select_top
from clare.steps import Choosing, Group, Learning, TaskInfo
from clare.tuners.backbone_weights import BackboneWeights


class FullFineTuneSettings(RecipeSettings):
    """The recipe, and which weights it trains."""

    acts: ClassVar[Acts] = {"selection": {"share": Lt(1)}, "probe_epochs": {"share": Lt(1), "selection": ("largest",)}}

    defaults: ClassVar[Any] = {"learning_rate": 0.002}
    share: float = Field(1.0, gt=0, le=1, description="Share of all weights of the backbone that a task trains.")
    selection: Literal["largest", "random"] = Field(
        "largest", description="Weights that a probe moved most, or as many at random."
    )
    probe_epochs: int = Field(5, ge=1, le=10_000, description="Epochs of the probe.")


@register
class FullFineTune(RecipeMethod, KeepsRowsAlone, Deploys, Diagnoses):
    """A second set of the backbone's weights, trained on one task after another."""

    name = "full-finetune"
    summary = "trains the weights of the whole backbone, or a sparse share of them, on task after task"
    family = "references"
    # A share, so that a check goes through probe and mask too.
    tiny: ClassVar[dict[str, Any]] = {"share": 0.25, "probe_epochs": 2}
    fixed_shapes = True
    settings: FullFineTuneSettings

    def __init__(self, backbone: Backbone, settings: FullFineTuneSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.weights = BackboneWeights(backbone.vit)
        self.threshold: float | None = None
        self.movement: dict[str, Any] | None = None

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the fine-tuned weights; the backbone's own stay what they are."""
        return self.weights.features(self.backbone, images)

    def learn(self, task: TaskInfo) -> Learning:
        """Choose the weights that may move, train them with fresh rows, then finish the rows."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        values = self.weights.values
        start = values.detach().clone()
        chosen = yield from self._choose(task, start)
        yield self.phase("train", self.settings.epochs, [Group(values, mask=chosen), *self.head.groups()])
        update = (values - start).abs()
        num_large = int((update >= LARGE).sum())
        self.movement = {**movement_histogram(update, self.threshold), f"num_at_least_{LARGE}": num_large}
        yield from self.head.finish(len(task.classes))

    def _choose(self, task: TaskInfo, start: Tensor) -> Choosing:
        """Mark the weights of this task: all, some at random, or those that a probe moves most, which is undone."""
        settings, values, self.threshold = self.settings, self.weights.values, None
        everything = torch.ones_like(start, dtype=torch.bool)
        budget = budget_of(len(start), settings.share)
        if settings.share == 1:
            return everything
        if settings.selection == "random":
            return select_random(everything, budget, task.generator("mask"))
        rows = [group.parameter.detach().clone() for group in self.head.groups()]
        # Decay towards zero would score a weight by its size.
        groups = [Group(values, decay_towards=start), *self.head.groups()]
        yield self.phase("probe", settings.probe_epochs, groups)
        scores = (values - start).abs()
        chosen = select_top(scores, everything, budget)
        self.threshold = smallest(scores, chosen)
        values.copy_(start)
        for group, row_values in zip(self.head.groups(), rows, strict=True):
            group.parameter.copy_(row_values)
        return chosen

    def deployed(self) -> Deployed:
        """Return all weights."""
        return Deployed(self.weights.weights())

    def diagnosis(self) -> dict[str, Any]:
        """Return how far the task moved the weights, and the smallest movement in the probe that was chosen."""
        return {"movement": self.movement} if self.movement else {}
