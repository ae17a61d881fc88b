"""What of a plain ViT is read as features, and in how many views of an image."""

import torch
from pydantic import Field, model_validator
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from clare.backbones.stages import num_read, read
from clare.backbones.views import views_of
from clare.settings import Settings


class FeatureSettings(Settings):
    """What of the backbone is read."""

    blocks: int = Field(
        1,
        ge=1,
        le=1000,
        description="Blocks, counted from the last, whose class tokens stand side by side as features.",
    )
    patches: bool = Field(
        False, description="Put the mean of the patch tokens beside the class token of each block that is read."
    )
    centre: bool = Field(
        False,
        description="Take that mean over the middle of the image: without a quarter of the patches, rounded down, on "
        "every side.",
    )
    views: int = Field(
        1,
        ge=1,
        le=16,
        description="Views of an image that is classified or counted, whose features are averaged: the whole image, "
        "then ever closer, up to its middle four sevenths.",
    )

    @model_validator(mode="after")
    def _centre_is_of_patches(self) -> "FeatureSettings":
        """Refuse the middle of patches that are not read."""
        if self.centre and not self.patches:
            raise ValueError("centre is true, but no patches are read; set patches to true or centre to false")
        return self

    def size(self, vit: VisionTransformer) -> int:
        """Return the size of the features, or say why these blocks cannot be read."""
        return num_read(vit, self.blocks, self.patches)

    def read(self, vit: VisionTransformer, images: Tensor, num_views: int) -> Tensor:
        """Return the features, shape (B, D), as means over so many views."""
        views = views_of(images, num_views)
        parts = [read(vit, view, self.blocks, self.patches, self.centre) for view in views]
        return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)
