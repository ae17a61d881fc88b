"""Further looks at the same images, whose features are averaged with those of the images as they are.

Shapes: B images of C channels, S pixels high and wide.
"""

import torch.nn.functional as F
from torch import Tensor

BORDER = 14
"""A closer look leaves out one part in so many, rounded down, on every side."""


def looks_at(images_BCSS: Tensor, closer: bool, mirrored: bool) -> list[Tensor]:
    """Return the images as they are and, if asked for, a closer look at them and the mirror of each look."""
    looks = [images_BCSS, enlarged_middle(images_BCSS)] if closer else [images_BCSS]
    return looks + [look.flip(3) for look in looks] if mirrored else looks


def num_looks(closer: bool, mirrored: bool) -> int:
    """Return how many looks `looks_at` returns."""
    return (1 + closer) * (1 + mirrored)


def enlarged_middle(images_BCSS: Tensor) -> Tensor:
    """Return the images without a border, brought back to their size."""
    size = images_BCSS.shape[-1]
    inner = slice(size // BORDER, size - size // BORDER)
    return F.interpolate(images_BCSS[..., inner, inner], size=(size, size), mode="bicubic", align_corners=False)
