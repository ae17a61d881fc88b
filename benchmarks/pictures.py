"""Pictures that look natural to a JPEG coder: coloured noise of several octaves with shapes on it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

NUM_CLASSES = 10
SIZE = (500, 375)
"""Width and height"""
QUALITY = 90
OCTAVES = {4: 60.0, 8: 40.0, 16: 26.0, 32: 17.0, 64: 12.0, 128: 9.0, 250: 6.0}
"""Cells from left to right, and how far each octave moves a pixel"""


def write_pictures(root: Path, num_images: int) -> None:
    """Fill root/{train,test}/<class>/ with JPEGs of ten classes, every fifth of a class for testing."""
    parts = ["test" if index // NUM_CLASSES % 5 == 4 else "train" for index in range(num_images)]
    write_tree(root, parts, NUM_CLASSES)


def write_tree(root: Path, parts: Sequence[str], num_classes: int) -> None:
    """Fill root/<part>/<class>/ with a JPEG for each part that is named; the classes take turns."""
    folders = [root / part / f"class {index % num_classes}" for index, part in enumerate(parts)]
    for folder in set(folders):
        folder.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(_write_picture, folders, range(len(parts)), (index % num_classes for index in range(len(parts)))))


def _write_picture(folder: Path, index: int, label: int) -> None:
    """Write one picture; its number and its class alone decide what is on it."""
    picture = make_picture(np.random.RandomState([label, index]))
    picture.save(folder / f"{index:06d}.jpg", quality=QUALITY)


def make_picture(random: np.random.RandomState) -> Image.Image:
    """Draw one picture."""
    width, height = SIZE
    pixels = np.full((height, width, 3), 128.0) + random.normal(0, 30, 3)
    for cells, strength in OCTAVES.items():
        grid = random.normal(0, 1, (max(2, cells * height // width), cells, 3))
        # One grey grid for all channels and a little colour: edges in photographs are mostly edges in brightness.
        grid = 0.8 * grid[:, :, :1] + 0.4 * grid
        for channel in range(3):
            plane = Image.fromarray(grid[:, :, channel].astype(np.float32))
            pixels[:, :, channel] += strength * np.asarray(plane.resize(SIZE, Image.Resampling.BICUBIC))
    picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for _ in range(random.randint(4, 12)):
        (left, right), (top, bottom) = np.sort(random.uniform(0, SIZE, (2, 2)), axis=0).T
        colour = tuple(random.randint(0, 256, 3).tolist())
        if random.rand() < 0.5:
            draw.ellipse((left, top, right, bottom), outline=colour, width=4)
        else:
            draw.line((left, top, right, bottom), fill=colour, width=6)
    return picture
