"""SparCL: one sparse set of numbers for all tasks, chosen anew while they train, on fewer images and by fewer slopes.

Wang and others: "SparCL: Sparse Continual Learning on the Edge" (NeurIPS 2022). Shapes: N numbers, of one matrix in
what is applied to each, B images, E epochs, I images of a task, K classes so far.
"""

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.replayed import MemorySettings
from clare.methods.base import register
from clare.methods.derpp import DarkExperienceReplay, DerppSettings
from clare.sparse.select import above_quantile
from clare.steps import Group, Learning, Pass, Result, Steepest, Step, TaskInfo


class SparclSettings(DerppSettings):
    """How sparse the numbers are, which images are left out, and how many numbers a step moves."""

    defaults: ClassVar[Any] = {
        "learning_rate": 0.03,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "memory": MemorySettings(pictures=500),
    }
    sparsity: float = Field(0.75, gt=0, lt=1, description="Share of each matrix that is as it was at the start.")
    exchange: float = Field(0.01, ge=0, lt=1, description="Share of each matrix that is dropped and grown at random.")
    every: int = Field(2, ge=1, le=10_000, description="Epochs after which mask and images are chosen anew.")
    slope_weight: float = Field(
        0.5, ge=0, le=1e6, description="Weight of a number's slope in what keeps it, beside how far it has moved."
    )
    left_out: float = Field(0.3, ge=0, le=0.9, description="Share of a task's images that is left out in the end.")
    left_out_by: float = Field(0.4, gt=0, le=1, description="Share of the epochs in which they are left out.")
    steepest: float = Field(0.2, gt=0, le=1, description="Share of each layer's numbers that a step moves.")
    steepest_every: int = Field(30, ge=1, le=1_000_000, description="Steps after which these are chosen anew.")


@register
class SparseContinualLearning(DarkExperienceReplay):
    """A sparse network that learns kept pictures again as DER++ does, at a part of the cost."""

    name = "sparcl"
    summary = "trains one sparse set of numbers with kept pictures, and leaves out easy images and small slopes"
    tiny: ClassVar[dict[str, Any]] = {**DarkExperienceReplay.tiny, "every": 1, "left_out_by": 1.0, "steepest_every": 2}
    settings: SparclSettings
    mask: Tensor
    start: Tensor

    def __init__(self, backbone: Backbone, settings: SparclSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("mask", torch.zeros_like(self.values, dtype=torch.bool))
        # Weights of a backbone can be read off it again.
        self.register_buffer("start", self.values.detach().clone(), persistent=settings.tunes == "adapter")

    def train_task(self, task: TaskInfo) -> Learning:
        """Choose a mask, train some epochs, leave out what is easy by now, and begin again."""
        settings, replay, generator = self.settings, self.replay(), task.generator("mask")
        removals = range(settings.every, int(settings.left_out_by * settings.epochs) + 1, settings.every)
        places: Tensor | None = None
        num_images = 0
        for epoch in range(0, settings.epochs, settings.every):
            yield from self.choose_mask(epoch / settings.epochs, generator)
            more = {"loss": self.judged, "replay": replay, "remarks": True, "places": places}
            optimizer = replace(settings.optimizer, start=epoch, turn=settings.epochs)
            num_epochs = min(settings.every, settings.epochs - epoch)
            found = yield self.phase(f"round {epoch + 1}", num_epochs, self.groups(), optimizer=optimizer, **more)
            is_right = found["remarks"].cpu() > 0
            places = torch.arange(is_right.shape[1]) if places is None else places
            num_images = num_images or len(places)
            if epoch + num_epochs in removals:
                easy = easiest(is_right, round(settings.left_out * num_images / len(removals)))
                places = places[~easy]

    def groups(self) -> list[Group]:
        """Return the numbers in the mask, of which only the steepest move, and the rows of all classes so far."""
        settings = self.settings
        choice = Steepest(settings.steepest, settings.steepest_every, tuple(self.layer_sizes))
        steepest = choice if settings.steepest < 1 else None
        values = Group(self.values, mask=self.mask, decay_towards=self.start, steepest=steepest)
        # Without kept pictures no loss is over earlier rows.
        return [values, *self.head.groups(), *(self.contrast.groups() if len(self.memory) else [])]

    def choose_mask(self, place: float, generator: torch.Generator) -> Generator[Step, Result, None]:
        """Keep what moved or is steep, grow some at random, and put back what is outside."""
        importance = (self.values - self.start).abs()
        if self.settings.slope_weight:
            found = yield Pass("slopes", self.slopes, of="images", view="train", replay=self.replay())
            importance = importance + self.settings.slope_weight * (found["slopes"] / found["count"]).abs()
        draw = torch.rand(len(self.mask), generator=generator).to(self.values)
        shares = shares_at(place, self.settings.sparsity, self.settings.exchange)
        self.mask.copy_(self.per_layer(partial(regrown, *shares), importance, draw))
        self.values.copy_(torch.where(self.mask, self.values, self.start))

    def slopes(self, images: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Return the gradient of the loss in all numbers, those outside the mask too, and of how many images."""
        slopes, size = torch.zeros_like(self.values), self.settings.batch_size
        parts = (torch.split(part, size) for part in (images, labels, weights))
        self.values.requires_grad_(True)
        with torch.enable_grad():
            for inputs, targets, some in zip(*parts, strict=True):
                summed = (self.judged(inputs, targets)[0] * some).sum()
                slopes += torch.autograd.grad(summed, self.values)[0]
        self.values.requires_grad_(False)
        return {"slopes": slopes, "count": weights.sum()}

    def judged(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return each image's loss, with that of kept pictures beside it, and whether it is told from all classes."""
        has_beside = labels.dim() > 1
        logits = self.logits(images.flatten(0, labels.dim() - 1)).view(*labels.shape, -1)
        own, classes = (logits[:, 0], labels[:, 0]) if has_beside else (logits, labels)
        losses = F.cross_entropy(own[:, : len(self.head.block)], classes, reduction="none")
        if has_beside:
            losses = losses + self.dark_loss(logits[:, 1:], labels[:, 1:])
        return losses, own.argmax(1) == classes


def shares_at(place: float, sparsity: float, exchange: float) -> tuple[float, float]:
    """Return the shares outside the mask after dropping and after growing, at a place in a task from 0 to 1.

    A task begins with room for more, exchanges numbers after that, and has its network for the last tenth.
    """
    if place == 0:
        return sparsity, max(sparsity - exchange, 0.0)
    return (min(sparsity + exchange, 1.0), sparsity) if place < 0.9 else (sparsity, sparsity)


def regrown(dropped: float, outside: float, importance_N: Tensor, draw_N: Tensor) -> Tensor:
    """Mark what is more important than the share to drop, and of the rest what drew most, up to the share outside."""
    kept = above_quantile(importance_N, dropped)
    number = int(len(kept) - int(kept.sum()) - outside * len(kept)) if outside < dropped else 0
    grown = draw_N.masked_fill(kept, -torch.inf).topk(max(number, 0)).indices
    return kept.scatter(0, grown, True)


def easiest(is_right_EI: Tensor, number: int) -> Tensor:
    """Mark so many images that turned from right to wrong least often; never to be right counts as most often."""
    forgotten = (is_right_EI[:-1] & ~is_right_EI[1:]).sum(0)
    forgotten = torch.where(is_right_EI.any(0), forgotten, len(is_right_EI))
    chosen = forgotten.argsort(stable=True)[:number]
    return torch.zeros_like(is_right_EI[0]).scatter(0, chosen, True)
