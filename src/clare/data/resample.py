"""Cropping and resizing of a whole batch as two matrix products, with Pillow's filters."""

import torch
from torch import Tensor

from clare.data.settings import Kernel as Kernel
from clare.data.store import Canvas


def window_weights(
    start: Tensor, length: Tensor, full_size: Tensor, offset: Tensor, out_size: int, in_size: int, kernel: Kernel
) -> Tensor:
    """Return the `out_size` rows from `offset` on of the weights that resize a box to `full_size` pixels."""
    device = start.device
    scale = (length.double() / full_size)[:, None]
    centres = (torch.arange(out_size, device=device) + offset[:, None] + 0.5) * scale
    # Whole pixels and fractions apart: single precision has too few digits for both at once.
    whole = centres.floor()
    fraction = (centres - whole).float()
    pixels = (torch.arange(in_size, device=device) - start[:, None]).float()
    distances = pixels[:, None, :] - whole.float()[:, :, None] + (0.5 - fraction)[:, :, None]
    weights = _filter(distances / scale.float().clamp(min=1)[:, :, None], kernel)
    inside = (pixels >= 0) & (pixels < length[:, None])
    weights = weights * inside[:, None, :]
    return weights / weights.sum(dim=2, keepdim=True)


def crop_resize(canvas: Canvas, boxes: Tensor, out_size: int, kernel: Kernel, flip: Tensor) -> Tensor:
    """Resize the box (top, left, height, width) of each image to a square in 0..255, mirrored where `flip` is true."""
    top, left, height, width = boxes.to(canvas.pixels.device, non_blocking=True).unbind(dim=1)
    rows, columns = canvas.pixels.shape[2:]
    full_size, start = height.new_full((), out_size), torch.zeros_like(top)
    weights_y = window_weights(top, height, full_size, start, out_size, rows, kernel)
    weights_x = window_weights(left, width, full_size, start, out_size, columns, kernel)
    mirrored = flip.to(weights_x.device, non_blocking=True)[:, None, None]
    return apply_weights(canvas.pixels, weights_y, torch.where(mirrored, weights_x.flip(1), weights_x))


def apply_weights(pixels: Tensor, weights_y: Tensor, weights_x: Tensor) -> Tensor:
    """Resize uint8 pixels first along the width, then along the height, with 8 bits in between."""
    # Half precision would be one grey level off.
    with torch.autocast(pixels.device.type, enabled=False):
        narrowed = (pixels.float().flatten(1, 2) @ weights_x.mT).view(*pixels.shape[:3], weights_x.shape[1])
        # As Pillow does, which cuts the overshoot of the cubic; from version 13 it takes some tall images height first.
        return weights_y[:, None] @ to_levels(narrowed)


def to_levels(values: Tensor) -> Tensor:
    """Return the nearest of the 256 grey levels, and of two equally near ones the brighter, as Pillow does."""
    return (values + 0.5).floor_().clamp_(0, 255)


def _filter(distances: Tensor, kernel: Kernel) -> Tensor:
    """Return the filter's value at distances in units of its stretched step."""
    x = distances.abs()
    if kernel == "bilinear":
        return (1 - x).clamp(min=0)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))
