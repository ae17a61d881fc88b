"""Uploaded bytes become pixels: only real images of a bounded size."""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from PIL import Image

from clare.data.images import FORMATS, Pixels
from clare.errors import DataError
from clare.own.pictures import Reader
from clare.serve.limits import Refusal

GREATEST_RATIO = 2
"""The longer side of a kept image by its shorter one; the rest lies outside the square that the backbone sees."""


def check_image(content: bytes, name: str, most_pixels: int) -> None:
    """Refuse what is no image, whatever its name says, and images with too many pixels, without decoding any."""
    width, height = _read_size(content, name)
    if width * height > most_pixels:
        raise Refusal(
            413, f"'{name}' has {width} x {height} pixels, more than {most_pixels} in all; send a smaller image"
        )


def _read_size(content: bytes, name: str) -> tuple[int, int]:
    """Read width and height from an image's header."""
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            return image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Refusal(413, f"'{name}' has far too many pixels; send a smaller image") from None
    except Exception:  # headers fail with almost every kind of exception
        raise Refusal(422, f"'{name}' is no image of a known format ({', '.join(FORMATS)}); leave it out") from None


def decode_all(contents: Sequence[tuple[str, bytes]], reader: Reader, most_pixels: int) -> list[Pixels]:
    """Check and read images, given with their names."""
    return [decode(content, name, reader, most_pixels) for name, content in contents]


def decode(content: bytes, name: str, reader: Reader, most_pixels: int) -> Pixels:
    """Check and read one image as the model needs it, (channels, height, width)."""
    check_image(content, name, most_pixels)
    try:
        return cut_ends(reader.image(content))
    except DataError:
        raise Refusal(422, f"'{name}' cannot be read to its end as an image; send an undamaged one") from None


def cut_ends(pixels: Pixels) -> Pixels:
    """Keep the middle of a very long image, since every image of a batch takes as much memory as its largest sides."""
    height, width = pixels.shape[1:]
    longest = GREATEST_RATIO * min(height, width)
    # Whole pixels from both ends, equally many, so that the middle stays where it was.
    top, left = max(0, height - longest) // 2, max(0, width - longest) // 2
    return np.ascontiguousarray(pixels[:, top : height - top, left : width - left])


def as_array(pixels: Pixels) -> Pixels:
    """Return (channels, height, width) as (height, width) or (height, width, channels)."""
    return np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
