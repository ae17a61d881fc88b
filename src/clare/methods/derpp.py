"""DER++: kept pictures with the logits that they had, which are matched, and a second draw of them with their classes.

Buzzega, Boschini, Porrello, Abati, Calderara: "Dark Experience for General Continual Learning: a Strong, Simple
Baseline" (NeurIPS 2020). Shapes: B images, K logits of earlier classes, Q places for pictures.
"""

from collections.abc import Generator
from functools import partial

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.growth import Growing
from clare.methods._shared.replayed import ReplayMethod, ReplaySettings
from clare.methods.base import register
from clare.steps import Collect, Result, Step, TaskInfo


class DerppSettings(ReplaySettings):
    """The weights of both draws."""

    alpha: float = Field(0.1, ge=0, le=100, description="Weight of the squared distance to the logits as they were.")
    beta: float = Field(0.5, ge=0, le=100, description="Weight of the cross-entropy of the second draw.")


@register
class DarkExperienceReplay(ReplayMethod, Growing):
    """Pictures of earlier tasks that are to be answered as they were."""

    name = "derpp"
    summary = "matches the logits that kept pictures had, and learns a second draw of them again"
    grows = ("outputs",)
    settings: DerppSettings
    outputs: Tensor

    def __init__(self, backbone: Backbone, settings: DerppSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("outputs", torch.zeros(settings.memory.pictures, 0))

    @property
    def room(self) -> int:
        """Return the room for earlier rows and for the logits of pictures."""
        return super().room + self.outputs.shape[1]

    def pools(self, every: Tensor) -> tuple[Tensor, ...]:
        """Put one picture of either draw beside every image."""
        return every, every

    def replay_labels(self) -> Tensor:
        """Return the place of each kept picture, which says what is known of it."""
        return torch.arange(len(self.memory), device=self.memory.labels.device)

    def replay_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy, and what its two pictures add to it."""
        logits = self.logits(images.flatten(0, 1)).view(*labels.shape, -1)
        own = F.cross_entropy(logits[:, 0], labels[:, 0], reduction="none")
        return own + self.dark_loss(logits[:, 1:], labels[:, 1:])

    def dark_loss(self, logits: Tensor, places: Tensor) -> Tensor:
        """Return what two kept pictures pay: the first for logits that changed, the second as one of its class."""
        size = len(self.head.block)
        stored = self.outputs[places[:, 0]]
        changed = change(logits[:, 0, size : size + stored.shape[1]], stored)
        again = F.cross_entropy(logits[:, 1], size + self.memory.labels[places[:, 1]], reduction="none")
        return self.settings.alpha * changed + self.settings.beta * again

    def remember(self, task: TaskInfo) -> Generator[Step, Result, Tensor]:
        """Choose which pictures are kept, and note the logits of the new ones as the task's training left them."""
        num_before, num_new = len(self.classes), len(task.classes)
        stays = yield from super().remember(task)
        found = yield Collect("outputs", partial(self.all_logits, num_before, num_new), pictures=self.memory.pictures)
        width = max(len(self.contrast.rows), num_before + num_new)
        outputs = self.outputs.new_full((len(self.outputs), width), torch.nan)
        outputs[: len(stays), : self.outputs.shape[1]] = self.outputs[stays.to(self.outputs.device)]
        new = found["values"][len(stays) :]
        outputs[len(stays) : len(found["values"]), : new.shape[1]] = new
        if outputs.shape != self.outputs.shape:
            self.outputs = outputs
        self.outputs.copy_(outputs)
        return stays

    def all_logits(self, num_before: int, num_new: int, images: Tensor) -> Tensor:
        """Return the logits of all classes so far in their order."""
        logits = self.logits(images)
        size = len(self.head.block)
        return torch.cat([logits[:, size : size + num_before], logits[:, :num_new]], 1)


def change(logits_BK: Tensor, stored_BK: Tensor) -> Tensor:
    """Return the mean squared distance of each picture's logits to the stored ones, as far as there are any."""
    known = stored_BK.isfinite()
    # What is closed or unknown is left out before it is subtracted, since no gradient passes through infinity.
    gap = torch.where(known, logits_BK, 0) - torch.where(known, stored_BK, 0)
    return gap.square().sum(1) / known.sum(1)
