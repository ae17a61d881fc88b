"""What of a backbone is read as features, and in how many views of an image, each closer than the last.

Shapes: B images of C channels, S pixels high and wide.
"""

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from clare.backbones.families import Model
from clare.backbones.stages import part_sizes, read
from clare.settings import Settings

WIDEST_BORDER = 3 / 14
"""Share of the image's side that the closest view leaves out on every side."""


def views_of(images_BCSS: Tensor, num_views: int) -> list[Tensor]:
    """Return the images as they are and closer views of them, the borders left out growing in equal steps."""
    size = images_BCSS.shape[-1]
    borders = [round(WIDEST_BORDER * size * index / (num_views - 1)) for index in range(1, num_views)]
    return [images_BCSS, *(enlarged_middle(images_BCSS, border) for border in borders)]


def enlarged_middle(images_BCSS: Tensor, border: int) -> Tensor:
    """Return the images without so many pixels on every side, brought back to their size."""
    size = images_BCSS.shape[-1]
    inner = slice(border, size - border)
    return F.interpolate(images_BCSS[..., inner, inner], size=(size, size), mode="bicubic", align_corners=False)


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
