"""Pictures as users have them: folders, arrays, PIL images, data sets."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from clare.data.folders import image_paths, subfolders
from clare.data.images import Pixels, decode_image, to_pixels
from clare.errors import DataError

ImageLike = str | Path | bytes | Image.Image | Pixels
Examples = str | Path | Mapping[str, Sequence[ImageLike]] | Iterable[tuple[ImageLike, int]]
"""A folder with one folder per class, images by class name, or a torchvision-style set with `classes`."""


def read_examples(dataset: Examples, channels: int) -> dict[str, list[Pixels]]:
    """Decode a data set into images by class name."""
    if isinstance(dataset, str | Path):
        return _read_folder(Path(dataset), channels)
    if isinstance(dataset, Mapping):
        return {str(name): [read_image(image, channels) for image in images] for name, images in dataset.items()}
    names = getattr(dataset, "classes", None)
    if names is None:
        raise DataError(
            f"a {type(dataset).__name__} cannot be learnt; give a folder of class folders, "
            "a dict of images by class name, or a torchvision data set with `classes`"
        )
    examples: dict[str, list[Pixels]] = {str(name): [] for name in names}
    order = list(examples)
    for image, label in dataset:
        if not 0 <= int(label) < len(order):
            raise DataError(f"a label is {int(label)}, but the data set names {len(order)} classes; correct the labels")
        examples[order[int(label)]].append(read_image(image, channels))
    return examples


def _read_folder(folder: Path, channels: int) -> dict[str, list[Pixels]]:
    """Decode a folder that has one folder of images per class."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; give a folder that has one folder per class")
    classes = subfolders(folder)
    if not classes:
        raise DataError(f"{folder} has no class folders; put the images of each class into a folder of its own")
    return {name: [decode_image(path, channels) for path in image_paths(folder / name)] for name in classes}


def read_image(image: ImageLike, channels: int) -> Pixels:
    """Return one image as uint8 (C, H, W), whatever it came as."""
    if isinstance(image, str | Path):
        return decode_image(Path(image), channels)
    if isinstance(image, bytes):
        return decode_image(image, channels)
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise DataError(
                f"an array of shape {image.shape} and type {image.dtype} is no image; "
                "give uint8 of shape (height, width) or (height, width, channels)"
            )
        image = Image.fromarray(image)
    return to_pixels(image, channels)


def as_list(images: ImageLike | Sequence[ImageLike]) -> list[ImageLike]:
    """Return one image or several as a list; an array of four dimensions is several."""
    is_one = isinstance(images, str | Path | bytes | Image.Image) or (
        isinstance(images, np.ndarray) and images.ndim < 4
    )
    return [images] if is_one else list(images)  # type: ignore[list-item, arg-type]
