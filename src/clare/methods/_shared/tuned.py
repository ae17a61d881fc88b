"""What the methods have in common that train the shared adapter or, where a setting says so, the whole backbone."""

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.features import FeatureSettings
from clare.backbones.vit import Backbone
from clare.methods._shared.adapted import AdaptedSettings
from clare.methods._shared.recipe import RecipeMethod
from clare.methods.base import USUAL, bare_features
from clare.methods.protocols import Deployed, Deploys
from clare.seeds import generator_at
from clare.settings import Acts
from clare.tuners.adapter import FlatAdapter
from clare.tuners.backbone_weights import BackboneWeights


class TunedSettings(AdaptedSettings):
    """The recipe, and what it trains."""

    acts: ClassVar[Acts] = {"adapter": {"tunes": ("adapter",)}, "features": {"tunes": ("adapter",)}}

    tunes: Literal["adapter", "backbone"] = Field(
        "adapter", description="Train the shared adapter, or a second set of all weights of the backbone."
    )

    @property
    def reading(self) -> FeatureSettings:
        """What of the backbone is read; with weights of its own no more than usual."""
        return self.features if self.tunes == "adapter" else USUAL


class FlatMethod(RecipeMethod):
    """A method whose tuned numbers are one flat vector."""

    fixed_shapes = True
    settings: TunedSettings

    def __init__(self, backbone: Backbone, settings: TunedSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.tuner: FlatAdapter | BackboneWeights
        if settings.tunes == "adapter":
            self.tuner = FlatAdapter(backbone.vit, settings.adapter, generator_at(seed, "adapter"), keeps_initial=False)
        else:
            self.tuner = BackboneWeights(backbone.vit)
        self.layer_sizes = [math.prod(shape) for shape in self.tuner.shapes.values()]
        self.is_matrix = [len(shape) == 2 and "bias" not in name for name, shape in self.tuner.shapes.items()]

    def per_layer(self, rule: Callable[..., Tensor], *flat_N: Tensor) -> Tensor:
        """Return what a rule marks in each matrix by the matrix's part of flat tensors; all else is marked."""
        parts = zip(*(torch.split(each, self.layer_sizes) for each in flat_N), strict=True)
        found = [
            rule(*part) if is_matrix else torch.ones_like(part[0], dtype=torch.bool)
            for part, is_matrix in zip(parts, self.is_matrix, strict=True)
        ]
        return torch.cat(found)

    @property
    def values(self) -> nn.Parameter:
        """All numbers that are tuned."""
        return self.tuner.values

    def features_at(self, images: Tensor, values: Tensor | None = None) -> Tensor:
        """Return the features with these values, or others, which are used without dropout."""
        if isinstance(self.tuner, BackboneWeights):
            return self.tuner.features(self.backbone, images, values)
        with self.tuner.spread(values):
            return bare_features(self, images)

    def features_of(self, images: Tensor, values: Tensor) -> Tensor:
        """Return the features with values that are trained in the place of the method's own."""
        if isinstance(self.tuner, BackboneWeights):
            return self.features_at(images, values)
        with self.tuner.replaced(values):
            return self.features_at(images)


class TunedMethod(FlatMethod, Deploys):
    """A method whose tuned numbers are shared by all tasks."""

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the tuned backbone."""
        return self.features_at(images)

    def deployed(self) -> Deployed:
        """Return the adapters, or all weights."""
        if isinstance(self.tuner, BackboneWeights):
            return Deployed(self.tuner.weights())
        return Deployed(adapters=self.tuner.parts(), adapter_scale=self.tuner.settings.scale)
