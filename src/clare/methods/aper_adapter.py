"""APER: the first task tunes the backbone; from then on class means of bare and tuned features side by side.

Zhou et al., "Revisiting Class-Incremental Learning with Pre-Trained Models: Generalizability and Adaptivity are All
You Need" (IJCV 2024).
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.kinds import StatisticsHead
from clare.heads.prototype import PrototypeSettings
from clare.methods._shared.first_task import OF_ONE_TUNER, FirstTaskMethod, FirstTaskSettings
from clare.methods.base import bare_features, register
from clare.methods.protocols import KeepsRowsAlone, PassesSeveralTimes
from clare.settings import Acts
from clare.steps import Learning, TaskInfo


class AperSettings(FirstTaskSettings):
    """The tuner, which is never left out: without one, the method is 'simplecil'."""

    acts: ClassVar[Acts] = OF_ONE_TUNER

    head: StatisticsHead = Field(PrototypeSettings(), description="The classifier of both features side by side.")
    tuner: Literal["adapter", "ssf", "vpt-deep", "vpt-shallow"] = Field(
        "adapter",
        description="What the first task trains: an adapter beside every MLP, scales and shifts of all layers' outputs "
        "(ssf), prompts for every block, or prompts for the first block.",
    )


@register
class Aper(FirstTaskMethod, PassesSeveralTimes, KeepsRowsAlone):
    """Two branches, the bare backbone and the one tuned on the first task; rows are class means of both."""

    name = "aper-adapter"
    summary = "tunes the backbone on the first task, then takes class means of bare and tuned features side by side"
    family = "adapters"
    settings: AperSettings

    def __init__(self, backbone: Backbone, settings: AperSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.head = settings.head.make(2 * self.num_tuned, seed)

    def features(self, images: Tensor) -> Tensor:
        """Return the bare features, then the tuned ones, shape (B, 2D)."""
        return torch.cat([bare_features(self, images), self.tuned_features(images)], dim=1)

    def learn(self, task: TaskInfo) -> Learning:
        """Tune on the first task, then finish rows from one pass over the task."""
        yield from self.tune(task)
        self.head.open_block(len(task.classes), task.generator("rows"))
        yield from self.head.finish(len(task.classes))
