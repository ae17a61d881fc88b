"""SEMA: where the descriptors of a block's adapters find a task's images new, the block gets one more adapter.

Wang, Lu, Yao, Gong: "Self-Expansion of Pre-trained Models with Mixture of Adapters for Continual Learning" (CVPR 2025).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.families import family_of
from clare.backbones.vit import Backbone
from clare.heads.trained import TrainedSettings
from clare.methods._shared.recipe import RecipeMethod, SgdSettings
from clare.methods.base import MethodSettings, bare_features, register
from clare.methods.protocols import CachesFeatures
from clare.seeds import generator_at
from clare.steps import Collect, Learning, TaskInfo
from clare.tuners.mixture import BlockAdapters, Mixture, MixtureSettings


class SemaSettings(MethodSettings, SgdSettings):
    """The adapters, when one is added, and the two recipes of its training."""

    defaults: ClassVar[Any] = {"head": TrainedSettings(form="linear")}
    adapter: MixtureSettings = Field(MixtureSettings(), description="Each adapter and its descriptor.")
    expandable_share: float = Field(
        0.25, gt=0, le=1, description="Share of the blocks, counted from the last, that can get more adapters."
    )
    threshold: float = Field(
        2.0,
        ge=0,
        le=1_000_000,
        description="Mean distance, in standard deviations, from which on a batch is new to a descriptor.",
    )
    scan_batch_size: int = Field(128, ge=1, le=65_536, description="Images whose distances are averaged in a scan.")
    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training an adapter, its router row and the head.")
    descriptor_epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training a descriptor.")
    learning_rate: float = Field(
        0.005, gt=0, le=100, description="Learning rate of adapter, router row and head at the start of the cosine."
    )
    descriptor_learning_rate: float = Field(
        0.01, gt=0, le=100, description="Learning rate of a descriptor at the start of the cosine."
    )


@register
class Sema(RecipeMethod, CachesFeatures):
    """Adapters in every block; the last blocks get more of them when a task is new to those they have."""

    name = "sema"
    summary = "adds adapters with a router to the last blocks where a task looks new"
    family = "adapters"
    tiny: ClassVar[dict[str, Any]] = {
        "adapter": {"descriptor": 4},
        "expandable_share": 1.0,
        "threshold": 0.5,
        "descriptor_epochs": 2,
        "scan_batch_size": 5,
        "learning_rate": 0.001,
    }
    # Adapters are added as the data ask for them, so shapes change and steps are not recorded.
    settings: SemaSettings

    def __init__(self, backbone: Backbone, settings: SemaSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        num_expandable = share_of_blocks(settings.expandable_share, len(family_of(backbone.vit).widths(backbone.vit)))
        self.mixture = Mixture(backbone.vit, settings.adapter, num_expandable, generator_at(seed, "adapters"))

    @property
    def features_version(self) -> int:
        """After a task the features change only with the number of adapters."""
        return sum(self.mixture.counts)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the adapted backbone."""
        with self.mixture.spread():
            return bare_features(self, images)

    def learn(self, task: TaskInfo) -> Learning:
        """Train all adapters on the first task, and on a later one those that it adds; then finish the rows."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        if not self.tasks:
            yield from self._fit(self.mixture.adapters, range(len(self.mixture.routed)))
        else:
            yield from self._expand(task)
        yield from self.head.finish(len(task.classes))

    def _expand(self, task: TaskInfo) -> Learning:
        """Scan, add and train one adapter after another until nothing is new; without any, train the head alone."""
        routed, grown, start = self.mixture.routed, set[int](), 0
        while len(grown) < len(routed):
            scores = (yield Collect("scan", self.novelty, view="train"))["values"].double().cpu()
            ordered = scores[self.scan_order(task, len(scores))]
            criteria = batch_criteria(ordered, self.mixture.counts, self.settings.scan_batch_size)
            criteria[:, sorted(grown)] = -math.inf
            found = first_above(criteria, self.settings.threshold, start)
            if found is None:
                break
            batch, place = found
            grown.add(place)
            routed[place].grow(task.generator(f"adapter {place}"))
            yield from self._fit([routed[place]], [place])
            # The scan goes on behind the batch that was new, then from the first one on.
            start = batch + 1
        if not grown:
            yield self.phase("train", self.settings.epochs, self.head.groups())

    def scan_order(self, task: TaskInfo, num_images: int) -> Tensor:
        """Return the order in which a scan cuts the task's images into batches."""
        return torch.randperm(num_images, generator=task.generator("scan"))

    def _fit(self, adapters: Sequence[BlockAdapters], places: Sequence[int]) -> Learning:
        """Train the newest adapters and the head, then the newest descriptors, and keep the statistics of these."""
        settings, routed = self.settings, [self.mixture.routed[place] for place in places]
        groups = [group for block in adapters for group in block.groups()]
        yield self.phase("train", settings.epochs, [*groups, *self.head.groups()])

        def rows(images: Tensor) -> Tensor:
            return self.newest_losses(images, places)

        groups = [group for block in routed for group in block.descriptor_groups()]
        optimizer = replace(settings.optimizer, learning_rate=settings.descriptor_learning_rate)
        own = {"loss": lambda images, _: rows(images).sum(1), "optimizer": optimizer}
        yield self.phase("describe", settings.descriptor_epochs, groups, **own)
        losses = (yield Collect("statistics", rows, view="train"))["values"]
        for block, values in zip(routed, losses.unbind(1), strict=True):
            block.remember(values)

    def newest_losses(self, images: Tensor, places: Sequence[int]) -> Tensor:
        """Return the newest descriptor's loss at some of the blocks that can get more, shape (B, places)."""
        means = self.token_means(images)
        return torch.stack([self.mixture.routed[place].newest_loss(means[place]) for place in places], 1)

    def novelty(self, images: Tensor) -> Tensor:
        """Return the distance from every descriptor's mean loss, block after block, shape (B, all adapters)."""
        means = self.token_means(images)
        return torch.cat([block.novelty(mean) for block, mean in zip(self.mixture.routed, means, strict=True)], 1)

    @torch.no_grad()
    def token_means(self, images: Tensor) -> list[Tensor]:
        """Return what the descriptors see of these images at each block that can get more adapters."""
        with self.mixture.spread() as means:
            self.backbone.forward_features(images)
        return means


def share_of_blocks(share: float, num_blocks: int) -> int:
    """Return a share of the blocks, rounded up to at least one."""
    # Rounded to the nearest first: 0.07 * 100 is a little more than 7 in floating point.
    return max(1, math.ceil(round(share * num_blocks, 6)))


def batch_criteria(scores: Tensor, counts: Sequence[int], batch_size: int) -> Tensor:
    """Return for every batch and block the least mean distance from one of its descriptors, shape (batches, blocks)."""
    means = torch.stack([part.mean(0) for part in torch.split(scores, batch_size)])
    return torch.stack([block.amin(1) for block in torch.split(means, list(counts), dim=1)], 1)


def first_above(criteria: Tensor, threshold: float, start: int) -> tuple[int, int] | None:
    """Return the first batch from `start` on, around the end, and its first block whose criterion is above."""
    num_batches, num_blocks = criteria.shape
    found = (criteria.roll(-start, 0) > threshold).flatten().nonzero()
    if not len(found):
        return None
    position = int(found[0])
    return (position // num_blocks + start) % num_batches, position % num_blocks
