"""What happens to a batch of images before the backbone sees it."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from clare.data.resample import apply_weights, crop_resize, to_levels, window_weights
from clare.data.settings import Kernel
from clare.data.settings import TransformSettings as TransformSettings
from clare.data.store import Canvas
from clare.errors import DataError

NUM_TRIES = 10
NUM_CROP_DRAWS = 2 * NUM_TRIES + 2
NUM_AFFINE_DRAWS = 5
WHITE = 255.0
BRIGHT_SHARE = 0.75


class Transforms:
    """Turns canvases into float images, at random for training and always alike for testing."""

    def __init__(self, settings: TransformSettings, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        """Take the mean and spread of each channel in the backbone's pretraining."""
        self.settings = settings
        self._mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self._std = torch.tensor(std, dtype=torch.float32)[:, None, None]

    def train(self, canvas: Canvas, generator: torch.Generator) -> Tensor:
        """Return an augmented batch of float32 (B, C, S, S); the same generator state gives the same batch."""
        return self.augment(canvas, self.draws(len(canvas.pixels), generator))

    def draws(self, num_images: int, generator: torch.Generator) -> Tensor:
        """Return the uniform draws that decide how each image is augmented, one row per image."""
        num_draws = {"crop": NUM_CROP_DRAWS, "affine": NUM_AFFINE_DRAWS, "none": 0}[self.settings.train] + 1
        return torch.rand(num_images, num_draws, generator=generator, device=generator.device, dtype=torch.float64)

    def augment(self, canvas: Canvas, draws: Tensor) -> Tensor:
        """Return a batch of float32 (B, C, S, S), each image augmented as its row of draws says."""
        settings = self.settings
        device = canvas.pixels.device
        if settings.train == "none":
            return self.test(canvas)
        draws = draws.to(device, non_blocking=True)
        flip = draws[:, -1] < settings.flip
        if settings.train == "affine":
            # What a map brings in from outside is black, so images are turned dark before they are moved.
            centred = self._darkened(to_levels(self._centred(canvas)))
            return self._scaled(to_levels(move_pixels(centred, affine_maps(draws[:, :-1] * 2 - 1, flip, settings))))
        boxes = crop_boxes(
            canvas.sizes.to(device, non_blocking=True), draws[:, :-1], settings.crop_scale, settings.crop_ratio
        )
        images = crop_resize(canvas, boxes, settings.image_size, settings.train_kernel, flip)
        return self._scaled(self._darkened(to_levels(images)))

    def test(self, canvas: Canvas) -> Tensor:
        """Return the batch resized by the shorter side and cropped at the centre, as float32 (B, C, S, S)."""
        return self._scaled(self._darkened(to_levels(self._centred(canvas))))

    def inverted(self, canvas: Canvas) -> Tensor:
        """Tell of each image whether the backbone sees its negative."""
        images = to_levels(self._centred(canvas))
        is_bright = bright_borders(images, WHITE)
        return is_bright if self.settings.invert == "bright-border" else torch.zeros_like(is_bright)

    def _centred(self, canvas: Canvas) -> Tensor:
        """Return the batch resized by the shorter side and cropped at the centre."""
        settings = self.settings
        return resize_centre_crop(canvas, settings.resize, settings.image_size, settings.test_kernel)

    def _darkened(self, images: Tensor) -> Tensor:
        """Turn images in 0..255 with a bright border into their negatives, if the settings say so."""
        return images if self.settings.invert == "never" else darkened(images, WHITE)

    def _scaled(self, images: Tensor) -> Tensor:
        """Scale images of the 8 bits that a file has to 0..1, or as in pretraining."""
        images = images / 255
        if self.settings.normalise == "none":
            return images
        if images.shape[1] != len(self._mean):
            raise DataError(
                f"the images have {images.shape[1]} channels and the backbone {len(self._mean)}; make `channels` agree"
            )
        mean, std = (values.to(images.device, non_blocking=True) for values in (self._mean, self._std))
        return (images - mean) / std


def bright_borders(images_BCSS: Tensor, white: float) -> Tensor:
    """Tell of each image with values in 0..white whether three in four of its outermost pixels are bright ones."""
    means = images_BCSS.mean(1)
    sides = (means[:, 0], means[:, -1], means[:, 1:-1, 0], means[:, 1:-1, -1])
    # Three in four, not half of them: what covers the border with a pattern is no ground to draw on.
    return (torch.cat(sides, dim=1) > white / 2).to(means).mean(1) >= BRIGHT_SHARE


def darkened(images_BCSS: Tensor, white: float) -> Tensor:
    """Turn images with values in 0..white and a bright border into their negatives."""
    return torch.where(bright_borders(images_BCSS, white)[:, None, None, None], white - images_BCSS, images_BCSS)


def crop_boxes(sizes: Tensor, draws: Tensor, scale: tuple[float, float], ratio: tuple[float, float]) -> Tensor:
    """Turn 22 uniform draws per image into the boxes (top, left, height, width) of torchvision's RandomResizedCrop."""
    height, width = sizes[:, :1], sizes[:, 1:]
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[:, :NUM_TRIES])
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    ratios = torch.exp(log_low + (log_high - log_low) * draws[:, NUM_TRIES : 2 * NUM_TRIES])
    # The largest box within the ratios.
    fallback_height = torch.minimum(height, (width.double() / ratio[0]).round().long().clamp(min=1))
    fallback_width = torch.minimum(width, (height.double() * ratio[1]).round().long().clamp(min=1))
    # The fallback comes last, so that the first candidate that fits is always there.
    widths = torch.cat([(area * ratios).sqrt().round().long(), fallback_width], dim=1)
    heights = torch.cat([(area / ratios).sqrt().round().long(), fallback_height], dim=1)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    box_height, box_width = heights.gather(1, first), widths.gather(1, first)
    room_y, room_x = height - box_height, width - box_width
    top = (draws[:, -2:-1] * (room_y + 1)).long()
    left = (draws[:, -1:] * (room_x + 1)).long()
    is_fallback = first == NUM_TRIES
    top, left = torch.where(is_fallback, room_y // 2, top), torch.where(is_fallback, room_x // 2, left)
    return torch.cat([top, left, box_height, box_width], dim=1)


def resize_centre_crop(canvas: Canvas, resize: int, image_size: int, kernel: Kernel) -> Tensor:
    """Resize the shorter side to `resize` and keep the central square, as float32 in 0..255."""
    sizes = canvas.sizes.to(canvas.pixels.device, non_blocking=True)
    resized = resize * sizes // sizes.amin(dim=1, keepdim=True)
    offsets = ((resized - image_size) / 2).round().long()
    start = torch.zeros_like(sizes[:, 0])
    weights_y, weights_x = (
        window_weights(start, sizes[:, axis], resized[:, axis], offsets[:, axis], image_size, in_size, kernel)
        for axis, in_size in enumerate(canvas.pixels.shape[2:])
    )
    return apply_weights(canvas.pixels, weights_y, weights_x)


def move_pixels(images: Tensor, maps: Tensor) -> Tensor:
    """Look up each place of the result where its (B, 2, 3) map points; outside the image it is black."""
    # Half precision would miss the place by a good part of a pixel.
    with torch.autocast(images.device.type, enabled=False):
        grid = F.affine_grid(maps.float(), list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, padding_mode="zeros", align_corners=False)


def affine_maps(draws: Tensor, flip: Tensor, settings: TransformSettings) -> Tensor:
    """Turn 5 draws in -1..1 per image into (B, 2, 3) maps from places in the result to places in the image."""
    angle = draws[:, 0] * math.radians(settings.rotation)
    slope = torch.tan(draws[:, 1] * math.radians(settings.shear))
    shrink = 1 / (1 + draws[:, 2] * settings.zoom)
    shift = 2 * settings.shift * draws[:, 3:5]
    mirror = torch.where(flip, -1.0, 1.0).to(draws.dtype)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    row_x = torch.stack([mirror * (cosine + slope * sine), mirror * (slope * cosine - sine)], dim=1)
    row_y = torch.stack([sine, cosine], dim=1)
    linear = torch.stack([row_x, row_y], dim=1) * shrink[:, None, None]
    return torch.cat([linear, -linear @ shift[:, :, None]], dim=2)
