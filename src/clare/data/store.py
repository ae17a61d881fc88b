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


class ImageStore:
    """Images of one channel count and any sizes, side by side in one flat uint8 tensor."""

    def __init__(self, flat: Tensor, sizes: Tensor, channels: int) -> None:
        """Take the pixels of all images in order, and the (N, 2) heights and widths, which stay on the CPU."""
        self.flat = flat
        self.sizes = sizes
        self.channels = channels
        ends = (sizes.prod(dim=1) * channels).cumsum(0)
        self._ends = ends.tolist()
        # Kept as Python numbers: slicing by a CUDA tensor would wait for the device at every image.
        self._shapes: list[list[int]] = sizes.tolist()
        self.is_uniform = bool((sizes == sizes[:1]).all())
        # Beside the pixels: a batch of equal sizes then needs nothing from the host.
        self._common_size = sizes[:1].to(flat.device) if self.is_uniform else sizes[:0]

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
        flat = torch.from_numpy(np.concatenate([image.reshape(-1) for image in images]))
        return cls(flat, sizes, channels)

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
        return len(self._shapes)

    @property
    def num_bytes(self) -> int:
        """Return how much memory the pixels take."""
        return self.flat.numel()

    @property
    def device(self) -> torch.device:
        """Return where the pixels are."""
        return self.flat.device

    def to(self, device: torch.device | str) -> ImageStore:
        """Return a store whose pixels are on the device; sizes stay on the CPU."""
        return ImageStore(self.flat.to(device), self.sizes, self.channels)

    def batch(self, indices: Tensor) -> Canvas:
        """Gather images into a canvas on the store's device; sizes that differ are on the CPU."""
        if self.is_uniform:
            height, width = self._shapes[0]
            images = self.flat.view(-1, self.channels, height, width)
            chosen = images.index_select(0, indices.to(self.device, non_blocking=True))
            return Canvas(chosen, self._common_size.expand(len(indices), 2))
        places = indices.tolist()
        sizes = self.sizes[places]
        pixels = self.flat.new_zeros((len(places), self.channels, *sizes.amax(dim=0).tolist()))
        for row, place in zip(pixels, places, strict=True):
            height, width = self._shapes[place]
            end = self._ends[place]
            image = self.flat[end - self.channels * height * width : end]
            row[:, :height, :width] = image.view(self.channels, height, width)
        return Canvas(pixels, sizes)


@dataclass(frozen=True)
class LabelledImages:
    """Some images of a store, each with a label."""

    store: ImageStore
    indices: Tensor
    """int64 positions in the store, on the CPU: the store looks sizes up there"""
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
