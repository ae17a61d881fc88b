"""Images decoded once into one flat uint8 tensor, and labelled views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clare.data.images import Pixels
from clare.errors import DataError


class Canvas(NamedTuple):
    """A batch of images of possibly different sizes, aligned at the top left and padded with zeros."""

    pixels: Tensor
    """uint8 (B, C, H, W)"""
    sizes: Tensor
    """int64 (B, 2): height and width of each image"""


def num_store_bytes(sizes: Tensor, channels: int) -> int:
    """Return how long the flat tensor of (N, 2) sizes is; after images of different sizes comes one spare row."""
    pixels = int(sizes.prod(dim=1).sum()) * channels
    return pixels if bool((sizes == sizes[:1]).all()) else pixels + int(sizes[:, 1].max())


class ImageStore:
    """Images of one channel count and any sizes, side by side in one flat uint8 tensor."""

    def __init__(
        self, flat: Tensor, sizes: Tensor, channels: int, is_mapped: bool = False, device: torch.device | None = None
    ) -> None:
        """Take the pixels of all images in order, their (N, 2) heights and widths, and whether they are in a file."""
        self.device = device or flat.device
        """Where batches are gathered."""
        # Rows of a canvas are read at its full width, so the last row of the last image needs something behind it,
        # which a file has.
        missing = 0 if is_mapped else num_store_bytes(sizes, channels) - len(flat)
        self.flat = torch.cat([flat, flat.new_zeros(missing)]) if missing > 0 else flat
        self.sizes = sizes.cpu()
        self.channels = channels
        self.is_mapped = is_mapped
        self.is_uniform = bool((self.sizes == self.sizes[:1]).all())
        height, width = self.sizes.amax(dim=0).tolist()
        self.canvas_size: tuple[int, int] = (height, width)
        """Height and width of every batch: those of the largest image, so that shapes never change."""
        # Beside the pixels: gathering a batch then needs nothing from the host.
        areas = self.sizes.prod(dim=1) * channels
        self._sizes = self.sizes.to(self.device)
        self._starts = (areas.cumsum(0) - areas).to(self.device)

    @classmethod
    def from_images(cls, images: Sequence[Pixels]) -> ImageStore:
        """Copy images of shape (C, H, W) with one common C into a store."""
        if not images:
            raise DataError("an image store needs at least one image, none came; give it some")
        channels = images[0].shape[0]
        for image in images:
            if image.ndim != 3 or image.dtype != np.uint8 or image.shape[0] != channels or 0 in image.shape:
                raise DataError(
                    f"an image of shape {image.shape} and type {image.dtype} does not fit in this store; "
                    f"give uint8 images of shape ({channels}, height, width)"
                )
        sizes = torch.tensor([image.shape[1:] for image in images], dtype=torch.int64)
        flat = np.zeros(num_store_bytes(sizes, channels), np.uint8)
        np.concatenate([image.reshape(-1) for image in images], out=flat[: sum(image.size for image in images)])
        return cls(torch.from_numpy(flat), sizes, channels)

    @classmethod
    def from_array(cls, array: Pixels | Tensor) -> ImageStore:
        """Take images of shape (N, C, H, W), without a copy where the array is contiguous and writable."""
        if isinstance(array, np.ndarray):
            array = torch.from_numpy(np.require(array, requirements=["C", "W"]))
        if array.ndim != 4 or array.dtype != torch.uint8 or array.numel() == 0:
            raise DataError(
                f"an array of shape {tuple(array.shape)} and type {array.dtype} cannot be a store; "
                "give one or more uint8 images as (number, channels, height, width)"
            )
        sizes = torch.tensor([array.shape[2:]], dtype=torch.int64).repeat(len(array), 1)
        return cls(array.reshape(-1), sizes, array.shape[1])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.sizes)

    @property
    def num_bytes(self) -> int:
        """Return how much memory the pixels take."""
        return self.flat.numel()

    def to(self, device: torch.device | str) -> ImageStore:
        """Return a store whose pixels are in the device's memory."""
        return ImageStore(self.flat.to(device, copy=self.is_mapped), self.sizes, self.channels)

    def batch(self, indices: Tensor) -> Canvas:
        """Gather images into a canvas on the store's device; indices there never wait for the host."""
        indices = indices.to(self.device, non_blocking=True)
        sizes = self._sizes[indices]
        pixels = self.rows(indices)
        return Canvas(pixels if self.is_uniform else blank_outside(pixels, sizes), sizes)

    def rows(self, indices: Tensor, out: Tensor | None = None) -> Tensor:
        """Gather the pixels of a canvas; what lies outside an image is left as it comes, and is to be blanked."""
        height, width = self.canvas_size
        shape = (len(indices), self.channels, height, width)
        if self.is_uniform:
            return torch.index_select(self.flat.view(-1, *shape[1:]), 0, indices, out=out)
        starts = row_starts(self._starts[indices], self._sizes[indices], self.channels, height)
        # A view of one window per byte: each row of the canvas is one of them, so no pixel has an index of its own.
        windows = self.flat.unfold(0, width, 1)
        target = None if out is None else out.view(-1, width)
        return torch.index_select(windows, 0, starts.flatten(), out=target).view(shape)


def row_starts(starts: Tensor, sizes: Tensor, channels: int, height: int) -> Tensor:
    """Return int64 (B, C, height) places where rows begin; rows below an image repeat its last one."""
    places = torch.arange(height, device=starts.device)
    heights, widths = sizes[:, 0, None, None], sizes[:, 1, None, None]
    rows = torch.minimum(places, heights - 1)
    planes = torch.arange(channels, device=starts.device)[:, None] * heights
    return starts[:, None, None] + (planes + rows) * widths


def blank_outside(pixels: Tensor, sizes: Tensor) -> Tensor:
    """Set to zero, in place, what lies to the right of and below each image of (B, C, H, W) pixels."""
    below, right = (
        torch.arange(side, device=pixels.device) >= sizes[:, axis, None] for axis, side in enumerate(pixels.shape[2:])
    )
    return pixels.masked_fill_((below[:, :, None] | right[:, None, :])[:, None], 0)


@dataclass(frozen=True)
class LabelledImages:
    """Some images of a store, each with a label."""

    store: ImageStore
    indices: Tensor
    """int64 positions in the store, on the CPU"""
    labels: Tensor
    """int64, one for each index"""

    def __post_init__(self) -> None:
        """Refuse indices and labels that do not pair."""
        if self.indices.shape != self.labels.shape:
            raise DataError(
                f"{len(self.indices)} images came with {len(self.labels)} labels; give each image one label"
            )

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.indices)

    def num_bytes(self, image_size: int) -> int:
        """Return how many bytes the pixels take, those of a large image as if it were a square of this size."""
        areas = self.store.sizes[self.indices].prod(dim=1).clamp(max=image_size**2)
        return int(areas.sum()) * self.store.channels

    def select(self, positions: Tensor) -> LabelledImages:
        """Return the images at these positions; the store is shared."""
        return replace(self, indices=self.indices[positions.cpu()], labels=self.labels[positions])

    def batch(self, positions: Tensor) -> tuple[Canvas, Tensor]:
        """Return the images at these positions and their labels; positions on the CPU never wait for a device."""
        canvas = self.store.batch(self.indices[positions.cpu()])
        return canvas, self.labels[positions.to(self.labels.device, non_blocking=True)]

    def to(self, device: torch.device | str) -> LabelledImages:
        """Return the same images with pixels and labels on the device."""
        return LabelledImages(self.store.to(device), self.indices, self.labels.to(device))
