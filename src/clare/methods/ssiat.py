"""SSIAT: one adapter tuned on task after task, and class statistics that follow the shift which that makes.

Tan, Zhou, Xiang, Wang, Wu, Li: "Semantically-Shifted Incremental Adapter-Tuning is A Continual ViTransformer"
(CVPR 2024).
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from clare.heads.realigned import RealignedSettings
from clare.methods._shared.adapted import AdaptedMethod, AdaptedSettings
from clare.methods._shared.recipe import MarginMethod, MarginSettings
from clare.methods.base import register
from clare.steps import Collect, Group, Learning, TaskInfo, answered


class SsiatSettings(AdaptedSettings, MarginSettings):
    """The authors' hyper-parameters on CIFAR-100 and ImageNet-R."""

    defaults: ClassVar[Any] = {"head": RealignedSettings(), "batch_size": 48, "learning_rate": 0.01}
    first_epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training the first task.")
    epochs: int = Field(10, ge=1, le=10_000, description="Epochs of training a later task.")
    shift_width: float = Field(
        4.0, gt=0, le=1e6, description="Distance from a class mean up to which an image's move counts for it."
    )
    as_published: bool = Field(
        False, description="Measure moves as the authors' code does, between two shuffled and augmented passes."
    )


@register
class Ssiat(MarginMethod, AdaptedMethod):
    """The adapter of fine-tuning; what is known of earlier classes moves with the images at hand."""

    name = "ssiat"
    summary = (
        "trains one adapter on task after task, moves old class means along, and trains all rows on drawn features"
    )
    family = "adapters"
    tiny: ClassVar[dict[str, Any]] = {"first_epochs": 2, "head": {"align_epochs": 2, "align_samples": 8}}
    fixed_shapes = True
    settings: SsiatSettings

    def learn(self, task: TaskInfo) -> Learning:
        """Train the whole adapter with fresh rows, let old classes follow, then finish the rows."""
        settings = self.settings
        self.head.open_block(len(task.classes), task.generator("rows"))
        groups = [Group(self.adapter.values), *self.head.groups()]
        if not (self.tasks and self.head.follows_drift):
            yield self.phase("train", settings.epochs if self.tasks else settings.first_epochs, groups)
            yield from self.head.finish(len(task.classes))
            return
        view: Literal["train", "test"] = "train" if settings.as_published else "test"
        before = yield Collect("features before", self.features, view=view)
        yield self.phase("train", settings.epochs, groups)
        after = yield Collect("features after", self.features, view=view)
        ends = after["values"]
        if settings.as_published:
            # From one image to another.
            ends = ends[torch.randperm(len(ends), generator=task.generator("pairs")).to(ends.device)]
        yield from self.head.follow_shift(before["values"], ends, settings.shift_width)
        finishing = self.head.finish(len(task.classes))
        yield from finishing if settings.as_published else answered(finishing, after)
