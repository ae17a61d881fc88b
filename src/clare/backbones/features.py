"""What of a backbone is read as features, and in how many views of an image."""

import torch
from pydantic import Field, model_validator
from torch import Tensor

from clare.backbones.families import Model
from clare.backbones.stages import part_sizes, read
from clare.backbones.views import views_of
from clare.settings import Settings


class FeatureSettings(Settings):
    """What of the backbone is read."""

    blocks: int = Field(
        1,
        ge=1,
        le=1000,
        description="How many blocks are read, counted from the last; their class tokens stand side by side as "
        "features. Of a hierarchical backbone, stages.",
    )
    patches: bool = Field(
        False,
        description="Put the mean of the patch tokens beside the class token of each block that is read; if the "
        "backbone's feature is that mean already, the class token beside it.",
    )
    centre: bool = Field(
        False,
        description="Take the mean of `patches` over the middle of the image alone: a quarter of them, rounded down, "
        "is left out on every side.",
    )
    views: int = Field(
        1,
        ge=1,
        le=16,
        description="Views of an image whose features are averaged when it is classified or enters statistics: the "
        "whole image, then closer ones, up to its middle four sevenths.",
    )

    @model_validator(mode="after")
    def _centre_is_of_patches(self) -> "FeatureSettings":
        """Refuse the middle of patches that are not read."""
        if self.centre and not self.patches:
            raise ValueError("centre is true, but no patches are read; set patches to true or centre to false")
        return self

    def part_sizes(self, model: Model) -> list[int]:
        """Return the sizes of the parts that stand side by side, or say why these blocks cannot be read."""
        return part_sizes(model, self.blocks, self.patches, self.centre)

    def read(self, model: Model, images: Tensor, num_views: int) -> Tensor:
        """Return the features, shape (B, D), as means over so many views."""
        views = views_of(images, num_views)
        parts = [read(model, view, self.blocks, self.patches, self.centre) for view in views]
        return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)
