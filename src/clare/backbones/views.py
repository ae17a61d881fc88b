"""Further views of the same images, each closer than the last, whose features are averaged.

Shapes: B images of C channels, S pixels high and wide.
"""

import torch.nn.functional as F
from torch import Tensor

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
