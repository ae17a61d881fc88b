"""MACIL: low-rank updates that keep how images of a class and their patches lie, and class means that follow the rest.

"Navigating Semantic Drift in Task-Agnostic Class-Incremental Learning" (ICML 2025).
Shapes: B images, N patches, C classes of the task, D features, L blocks.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.kinds import AnyHead
from clare.heads.mahalanobis import spread_out
from clare.heads.realigned import RealignedSettings
from clare.heads.statistics import class_sums, unbiased_covariances
from clare.methods._shared.low_rank import LowRankMethod
from clare.methods._shared.recipe import RecipeSettings
from clare.methods.base import register
from clare.methods.protocols import KeepsRowsAlone
from clare.steps import Collect, Group, Learning, Solve, TaskInfo, answered
from clare.tuners.lora import QkvLora

SHARE, RIDGE = 10.0, 1e-3
"""What is added to the covariances of the metric: times the mean variance and covariance, and to all variances."""


class MacilSettings(RecipeSettings):
    """The authors' hyper-parameters, the same on all sets."""

    defaults: ClassVar[Any] = {"batch_size": 48, "learning_rate": 0.01, "weight_decay": 0.0}
    head: AnyHead = Field(RealignedSettings(align_temperature=0.1), description="The classifier.")
    rank: int = Field(32, ge=1, le=4096, description="Rank of a task's update of a key or value projection.")
    first_epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training the first task.")
    epochs: int = Field(10, ge=1, le=10_000, description="Epochs of training a later task.")
    pair_weight: float = Field(1.0, ge=0, le=1e6, description="Weight of how distances within a class change.")
    patch_weight: float = Field(0.4, ge=0, le=1e6, description="Weight of how patches change.")
    shift_width: float = Field(
        1.0, gt=0, le=1e6, description="Distance from a class mean up to which an image's move counts for it."
    )
    kept_directions: int = Field(
        0,
        ge=0,
        le=4096,
        description="Leading singular directions of each frozen projection that updates leave as they are (OPLoRA).",
    )


@register
class Macil(LowRankMethod, KeepsRowsAlone):
    """Updates of keys and values, merged after every task, whose training looks at the network before it as well."""

    name = "macil"
    summary = "trains low-rank updates that keep distances within classes, and moves old class means along"
    family = "LoRA"
    tiny: ClassVar[dict[str, Any]] = {
        "rank": 4,
        "first_epochs": 2,
        "head": {"align_epochs": 2, "align_samples": 8, "scale": 5.0},
    }
    fixed_shapes = True
    settings: MacilSettings
    roots: Tensor

    def __init__(self, backbone: Backbone, settings: MacilSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.lora = QkvLora(backbone.vit, settings.rank, ("k", "v"), False, num_kept=settings.kept_directions)
        self.register_buffer("merged", self.lora.product())
        self.register_buffer("roots", torch.zeros(0, *[self.head.num_features] * 2), persistent=False)

    def learn(self, task: TaskInfo) -> Learning:
        """Train an update beside the network before it, merge it, let old classes follow, then finish the rows."""
        settings, num_new = self.settings, len(task.classes)
        self.head.open_block(num_new, task.generator("rows"))
        self.lora.draw(task.generator("down"))
        groups = [Group(self.lora.down), Group(self.lora.up), *self.head.groups()]
        if not self.tasks:
            yield self.phase("train", settings.first_epochs, groups)
            self.merge()
            yield from self.head.finish(num_new)
            return
        before = yield Collect("features before", self.features)
        solved = yield Solve("metrics", lambda: {"roots": metric_roots(before["values"], before["labels"], num_new)})
        if len(self.roots) != len(self.head.block):
            # Whoever recorded steps has to do so again for another block anyway.
            self.roots = self.roots.new_zeros(len(self.head.block), *self.roots.shape[1:])
        self.roots[:num_new] = solved["roots"].to(self.roots)
        yield replace(self.phase("train", settings.epochs, groups), loss=self.watched_loss)
        self.merge()
        after = yield Collect("features after", self.features)
        if self.head.follows_drift:
            yield from self.head.follow_shift(before["values"], after["values"], settings.shift_width)
        yield from answered(self.head.finish(num_new), after)

    def watched_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the task's classes, and what its pairs and patches have changed."""
        features, patches = self._tokens(images, self.update())
        with torch.no_grad():
            old, old_patches = self._tokens(images, self.merged)
        pairs = pair_changes(old, features, labels, self.roots)
        changes = patch_changes(old_patches, patches, features)
        kept = self.settings.pair_weight * pairs + self.settings.patch_weight * changes
        return self.head.block_loss(features, labels) + kept

    def _tokens(self, images: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, D) and patch tokens (B, N, D) under an update, in full precision."""
        with self.lora.active(update):
            tokens = self.backbone.forward_features(images)
            features: Tensor = self.backbone.forward_head(tokens, pre_logits=True)
        patches: Tensor = tokens[:, self.backbone.num_prefix_tokens :]
        return features.float(), patches.float()


def metric_roots(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return for each class a root, shape (C, D, D), under which its metric is the distance as we know it."""
    roots = []
    for label in range(num_classes):
        own = features[labels == label]
        sums = class_sums(own, labels.new_zeros(len(own)), labels.new_ones(len(own)), 1, outer=True)
        values, vectors = torch.linalg.eigh(spread_out(unbiased_covariances(sums)[0], SHARE, SHARE))
        roots.append((1 / (values + RIDGE).clamp(min=RIDGE) + 1e-6).sqrt()[:, None] * vectors.T)
    return torch.stack(roots)


def pair_changes(old_BD: Tensor, new_BD: Tensor, labels_B: Tensor, roots_CDD: Tensor) -> Tensor:
    """Return how far distances within each image's class, to images before it, are from those of the network before."""
    with torch.autocast(new_BD.device.type, enabled=False):
        old, new = (_distances(F.normalize(each, dim=1), labels_B, roots_CDD) for each in (old_BD, new_BD))
    # A pair is charged to its later image: padding comes last and weighs nothing.
    is_pair = (labels_B[:, None] == labels_B).tril(-1)
    return ((old - new).abs() * is_pair).sum(1)


def _distances(rows_BD: Tensor, labels_B: Tensor, roots_CDD: Tensor) -> Tensor:
    """Return the distances of all images, each turned by its own class's root, shape (B, B)."""
    turned = torch.einsum("bd,ced->bce", rows_BD, roots_CDD.to(rows_BD))
    own = turned[torch.arange(len(rows_BD), device=rows_BD.device), labels_B]
    return ((own[:, None] - own).square().sum(2) + 1e-8).sqrt()


def patch_changes(old_BND: Tensor, new_BND: Tensor, features_BD: Tensor) -> Tensor:
    """Return how far each image's patches have turned, most of all those that are unlike its feature, shape (B,)."""
    with torch.autocast(new_BND.device.type, enabled=False):
        alike = F.cosine_similarity(features_BD[:, None], new_BND, dim=2).clamp(-1, 1).detach()
        turned: Tensor = torch.linalg.vector_norm(F.normalize(new_BND, dim=2) - F.normalize(old_BND, dim=2), dim=2)
        return (alike.acos() / math.pi * turned).mean(1)
