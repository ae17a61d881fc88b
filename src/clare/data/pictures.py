"""One picture as users have it: a file, its bytes, a PIL image, an array, a tensor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from clare.data.images import Pixels, decode_image, to_pixels
from clare.errors import DataError


@dataclass(frozen=True)
class Stored:
    """A picture inside a larger file: what it is called, and how its bytes are read."""

    name: str
    read: Callable[[], bytes]

    def __str__(self) -> str:
        """Return the name by which messages call it."""
        return self.name


ImageLike = str | Path | bytes | Stored | Image.Image | npt.NDArray[Any] | Tensor | Mapping[str, Any]
"""A path, the bytes of a file, a picture inside a file, a PIL image, an array (H, W) or (H, W, C), a tensor (H, W) or
(C, H, W), or what a Hugging Face data set holds in place of an image that it has not decoded."""


def read_image(image: ImageLike, channels: int) -> Pixels:
    """Return one image as uint8 (C, H, W), whatever it came as."""
    if isinstance(image, Mapping):
        image = image["bytes"] if image.get("bytes") is not None else Path(str(image.get("path")))
    if isinstance(image, str | Path):
        return decode_image(Path(image), channels)
    if isinstance(image, Stored):
        return decode_image(image.read(), channels, image.name)
    if isinstance(image, bytes):
        return decode_image(image, channels)
    if isinstance(image, Tensor):
        image = image.detach().cpu().numpy()
        image = image.transpose(1, 2, 0) if image.ndim == 3 else image
    if isinstance(image, np.ndarray):
        return to_pixels(_from_array(image), channels)
    if not isinstance(image, Image.Image):
        raise DataError(f"a {type(image).__name__} is no picture; give a path, a PIL image, an array or a tensor")
    return to_pixels(image, channels)


def _from_array(array: npt.NDArray[Any]) -> Image.Image:
    """Return an array as a picture; numbers with a point go from 0 to 1."""
    plain = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    is_number = array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)
    has_shape = plain.ndim == 2 or (plain.ndim == 3 and plain.shape[2] in (3, 4))
    if not (is_number and has_shape and plain.size):
        raise DataError(
            f"an array of shape {array.shape} and type {array.dtype} is no image; give uint8, or floats from 0 to 1, "
            "of shape (height, width) or (height, width, channels), as a tensor (channels, height, width)"
        )
    if plain.dtype != np.uint8:
        lowest, highest = float(plain.min()), float(plain.max())
        # Also where one of them is no number.
        if not (lowest >= 0 and highest <= 1):
            raise DataError(
                f"an image of floats goes from {lowest:g} to {highest:g}; give values from 0 to 1, or uint8 from 0 to "
                "255, and leave normalisation to the classifier"
            )
        plain = (255 * plain.astype(np.float64)).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(plain))
