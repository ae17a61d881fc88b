"""CLARE with statistics that follow the features."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.drift import fit_drift_of_parts
from clare.methods.base import bare_features, register
from clare.methods.clare import Clare, ClareSettings
from clare.steps import Collect, Learning, Solve, TaskInfo, answered


class ClarePlusSettings(ClareSettings):
    """CLARE's settings, and what is added to them."""

    row_epochs: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Epochs in which a task's rows are trained alone before any coordinate is, so that the gradients "
        "of random rows do not spoil the features.",
    )
    follow_drift: bool = Field(
        True,
        description="Correct the statistics of earlier classes by how training changed the features of the task's own "
        "images; `trained` rows and random features are not corrected.",
    )
    hold: float = Field(
        0.0, ge=0, le=1000, description="Weight of the cosine distance of features to those before the task."
    )


@register
class ClarePlus(Clare):
    """CLARE that knows where earlier classes have gone."""

    name = "clare-plus"
    summary = "clare with class statistics that follow the drift, and a loss that can be over all classes so far"
    settings: ClarePlusSettings
    anchor: Tensor
    hold: Tensor

    def __init__(self, backbone: Backbone, settings: ClarePlusSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("anchor", self.adapter.values.detach().clone(), persistent=False)
        self.register_buffer("hold", self.adapter.values.new_zeros(()), persistent=False)

    def follows(self) -> bool:
        """Tell whether what is kept of earlier classes moves along with the features."""
        return self.settings.follow_drift and self.head.follows_drift

    def learn(self, task: TaskInfo) -> Learning:
        """Adapt as CLARE does, then let the statistics of earlier classes follow."""
        self._keep_values()
        self.hold.fill_(self.settings.hold if task.index > 0 else 0.0)
        if task.index == 0 or not self.follows():
            yield from super().learn(task)
            return
        before = yield Collect("features before", self.features)
        yield from self.adapt(task)
        after = yield Collect("features after", self.features)
        moves = (self.head.seen(before["values"]), self.head.seen(after["values"]), before["labels"])
        sizes = self.settings.reading.part_sizes(self.backbone)
        drift = yield Solve("drift", lambda: fit_drift_of_parts(*moves, sizes))
        self.head.carry_over(drift)
        yield from answered(self.head.finish(len(task.classes)), after)

    def _keep_values(self) -> None:
        """Note the adapter as it is, in place unless the pool was expanded."""
        if len(self.anchor) == len(self.adapter.values):
            self.anchor.copy_(self.adapter.values)
        else:
            self.anchor = self.adapter.values.detach().clone()

    def open_rows(self, task: TaskInfo) -> Learning:
        """Draw the task's rows, and let them find their classes while the features stand still."""
        self._keep_values()
        yield from super().open_rows(task)
        if self.settings.row_epochs > 0:
            yield self.phase("rows", self.settings.row_epochs, self.row_groups())

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the classes to tell apart, and what moving its features costs."""
        features = self.features(images)
        losses = self.contrast.loss(self.head, features, labels)
        if self.settings.hold == 0:
            return losses
        return losses + self.hold * (1 - F.cosine_similarity(features, self._features_before(images)))

    @torch.no_grad()
    def _features_before(self, images: Tensor) -> Tensor:
        """Return the features as they were when the task began."""
        with self.adapter.spread(self.anchor):
            return bare_features(self, images)
