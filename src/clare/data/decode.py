"""Image files become uint8 tensors, in order and only a few at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clare.data.images import decode_image, image_size, is_plain_jpeg, shrink_image, stored_size
from clare.data.prefetch import map_ahead
from clare.data.resample import apply_weights, to_levels, window_weights
from clare.data.settings import DataSettings
from clare.errors import DataError, SettingsError

Decoder = Callable[[list[bytes], int], list[Tensor]]
"""(contents of JPEG files, channels) -> uint8 (channels, height, width) each; raises if it fails for one of them."""

NUM_AHEAD = 128
NUM_TOGETHER = 64
MAX_PADDED_PIXELS = 1 << 25


class Room(NamedTuple):
    """How much memory decoded images take, and the longest side of any."""

    num_bytes: int
    longest_side: int


def read_images(paths: Sequence[Path], form: DataSettings, decoder: Decoder | None = None) -> Iterator[Tensor | None]:
    """Yield each image as uint8 (channels, height, width), or nothing for one that is skipped."""
    with ThreadPoolExecutor() as pool:
        if decoder is None:
            yield from map_ahead(pool, lambda path: read_file(path, form), paths, NUM_AHEAD)
            return
        files = zip(paths, map_ahead(pool, _jpeg_in, paths, 2 * NUM_TOGETHER), strict=True)
        while group := list(islice(files, NUM_TOGETHER)):
            yield from _decode_group(group, form, decoder, pool)


def measure(paths: Sequence[Path], form: DataSettings) -> Room:
    """Return the room that images will take, as their headers tell; those that cannot be read take none."""
    with ThreadPoolExecutor() as pool:
        sizes = [stored_size(*size, form.store_size) for size in pool.map(image_size, paths) if size is not None]
    pixels = sum(height * width for height, width in sizes)
    return Room(form.channels * pixels, max((max(size) for size in sizes), default=0))


def append_all(images: Iterable[Tensor | None], append: Callable[[Tensor], object]) -> tuple[Tensor, list[int]]:
    """Append images one after another, and return their (N, 2) sizes and the positions of those that are missing."""
    sizes: list[tuple[int, ...]] = []
    skipped: list[int] = []
    for position, image in enumerate(images):
        if image is None:
            skipped.append(position)
        else:
            append(image)
            sizes.append(tuple(image.shape[1:]))
    return torch.tensor(sizes, dtype=torch.int64).view(-1, 2), skipped


def read_file(path: Path, form: DataSettings) -> Tensor | None:
    """Read one image, or nothing where bad ones are to be skipped."""
    try:
        image = decode_image(path, form.channels)
    except DataError:
        if form.skip_bad_images:
            return None
        raise
    return torch.from_numpy(np.require(shrink_image(image, form.store_size), requirements=["C", "W"]))


def _jpeg_in(path: Path) -> bytes:
    """Read a file that the GPU may be able to decode; of others, which are left to Pillow, nothing."""
    try:
        content = path.read_bytes()
    except OSError:
        return b""
    return content if is_plain_jpeg(content) else b""


def _decode_group(
    files: list[tuple[Path, bytes]], form: DataSettings, decoder: Decoder, pool: ThreadPoolExecutor
) -> list[Tensor | None]:
    """Decode what the decoder takes together, and what it does not by Pillow."""
    # Pillow's part is begun first: the two then work at the same time.
    by_pillow = {
        place: pool.submit(read_file, path, form) for place, (path, content) in enumerate(files) if not content
    }
    places = [place for place, (_, content) in enumerate(files) if content]
    decoded = decode_or_leave([files[place][1] for place in places], form.channels, decoder)
    for place, image in zip(places, decoded, strict=True):
        if image is None:
            by_pillow[place] = pool.submit(read_file, files[place][0], form)
    taken = [(place, image) for place, image in zip(places, decoded, strict=True) if image is not None]
    small = shrink_images([image for _, image in taken], form.store_size)
    found = {place: image for (place, _), image in zip(taken, small, strict=True)}
    return [found[place] if place in found else by_pillow[place].result() for place in range(len(files))]


def decode_or_leave(contents: list[bytes], channels: int, decoder: Decoder) -> list[Tensor | None]:
    """Decode files together, or one by one where that fails; those that fail alone are left out."""
    if not contents:
        return []
    try:
        return list(decoder(contents, channels))
    except Exception:  # the decoder does not tell which file it refused, nor with which kind of exception
        if len(contents) == 1:
            return [None]
    return [image for content in contents for image in decode_or_leave([content], channels, decoder)]


def shrink_images(images: Sequence[Tensor], shorter_side: int) -> list[Tensor]:
    """Resize images as `shrink_image` does, where they are and several at once."""
    small = list(images)
    sizes = [stored_size(image.shape[1], image.shape[2], shorter_side) for image in images]
    large = [place for place, image in enumerate(images) if sizes[place] != tuple(image.shape[1:])]
    for places in _runs(large, [tuple(images[place].shape[1:]) for place in large]):
        resized = _resize([images[place] for place in places], [sizes[place] for place in places])
        for place, image in zip(places, resized, strict=True):
            small[place] = image
    return small


def _runs(places: list[int], sizes: list[tuple[int, ...]]) -> Iterator[list[int]]:
    """Cut places into runs whose images, padded to the largest of them, have a limited number of pixels."""
    run: list[int] = []
    height = width = 0
    for place, size in zip(places, sizes, strict=True):
        height, width = max(height, size[0]), max(width, size[1])
        if run and (len(run) + 1) * height * width > MAX_PADDED_PIXELS:
            yield run
            run, (height, width) = [], size
        run.append(place)
    if run:
        yield run


def _resize(images: list[Tensor], sizes: list[tuple[int, int]]) -> list[Tensor]:
    """Resize images to the given heights and widths, first along the width, with Pillow's cubic filter."""
    device = images[0].device
    before = torch.tensor([image.shape[1:] for image in images])
    after = torch.tensor(sizes)
    height, width = before.amax(dim=0).tolist()
    canvas = images[0].new_zeros((len(images), images[0].shape[0], height, width))
    for row, image in zip(canvas, images, strict=True):
        row[:, : image.shape[1], : image.shape[2]] = image
    start = torch.zeros(len(images), dtype=torch.int64, device=device)
    # Weights beyond an image's own new size are not numbers; they reach only pixels that are cut off below.
    weights_y, weights_x = (
        window_weights(
            start,
            before[:, axis].to(device),
            after[:, axis].to(device),
            start,
            int(after[:, axis].max()),
            side,
            "bicubic",
        )
        for axis, side in enumerate((height, width))
    )
    resized = to_levels(apply_weights(canvas, weights_y, weights_x))
    return [
        image[:, :new_height, :new_width].to(torch.uint8)
        for image, (new_height, new_width) in zip(resized, sizes, strict=True)
    ]


def gpu_decoder(device: torch.device) -> Decoder:
    """Return torchvision's JPEG decoder for a GPU; refuse if it is not there or does not work."""
    if device.type != "cuda":
        raise SettingsError("`data.decode` is gpu, but this run is on the CPU; set it to cpu")
    try:
        import torchvision.io as vision

        modes = {1: vision.ImageReadMode.GRAY, 3: vision.ImageReadMode.RGB}

        def decode(contents: list[bytes], channels: int) -> list[Tensor]:
            encoded = [torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents]
            images: list[Tensor] = vision.decode_jpeg(encoded, mode=modes[channels], device=device)
            return images

        grey = BytesIO()
        Image.new("RGB", (16, 16), "grey").save(grey, "JPEG")
        decode([grey.getvalue()], 3)
    except Exception as error:  # a missing operator, library or driver each fail in their own way
        raise SettingsError(
            f"`data.decode` is gpu, but torchvision cannot decode JPEG on {device} ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason given'}); set it to cpu"
        ) from error
    return decode
