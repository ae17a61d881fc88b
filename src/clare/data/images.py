"""The one place where encoded images become uint8 arrays."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from clare.errors import DataError

Pixels = npt.NDArray[np.uint8]


class Part(NamedTuple):
    """Images of one size, (N, C, H, W), with the positions of their classes in the alphabet."""

    images: Pixels
    labels: list[int]


IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

# Almost all images tell their size in these first bytes.
NUM_HEADER_BYTES = 1 << 14

# A closed list: Pillow would otherwise hand some files to outside programs, such as PostScript to Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

_UPRIGHT: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Warning filters belong to the whole process, so two threads must not change them at the same time.
_FILTERS_LOCK = threading.Lock()


def decode_image(source: Path | bytes, channels: int, name: str = "") -> Pixels:
    """Decode an image upright and on white to uint8 (channels, height, width); 3 channels are RGB, 1 is grey."""
    if channels not in (1, 3):
        raise DataError(f"an image cannot have {channels} channels here; ask for 1 (grey) or 3 (RGB)")
    shown = name or (str(source) if isinstance(source, Path) else "the image")
    try:
        image = _opened(source.read_bytes() if isinstance(source, Path) else source)
        image.load()
        return to_pixels(image, channels)
    except Exception as error:  # decoders fail on damaged bytes with almost every kind of exception
        raise DataError(
            f"'{shown}' cannot be read as an image ({_reason(error)}); replace or remove it, or pass --skip-bad-images"
        ) from None


def to_pixels(image: Image.Image, channels: int) -> Pixels:
    """Return a picture of any mode, upright and on white, as uint8 (channels, height, width)."""
    turn = _UPRIGHT.get(_orientation(image))
    upright = image if turn is None else image.transpose(turn)
    pixels = np.asarray(_in_mode(_on_white(upright), "RGB" if channels == 3 else "L"))
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def shrink_image(image: Pixels, shorter_side: int) -> Pixels:
    """Resize a (channels, height, width) image so that its shorter side is `shorter_side`, unless it is no larger."""
    height, width = image.shape[1:]
    new_height, new_width = stored_size(height, width, shorter_side)
    if (new_height, new_width) == (height, width):
        return image
    # One axis at a time: which axis Pillow takes first, and so the rounding, depends on its version.
    narrowed = [Image.fromarray(plane).resize((new_width, height), Image.Resampling.BICUBIC) for plane in image]
    return np.stack([np.asarray(plane.resize((new_width, new_height), Image.Resampling.BICUBIC)) for plane in narrowed])


def stored_size(height: int, width: int, shorter_side: int) -> tuple[int, int]:
    """Return height and width of an image whose shorter side is brought down to `shorter_side`; 0 changes nothing."""
    shorter = min(height, width)
    if not 0 < shorter_side < shorter:
        return height, width
    return shorter_side * height // shorter, shorter_side * width // shorter


def image_size(path: Path) -> tuple[int, int] | None:
    """Read height and width as they are in the file, before it is put upright; nothing where that fails."""
    try:
        with path.open("rb") as file:
            start = file.read(NUM_HEADER_BYTES)
            return _size_of(start) or _size_of(start + file.read())
    except OSError:
        return None


def _size_of(content: bytes) -> tuple[int, int] | None:
    """Return height and width of an image of which the header is there."""
    try:
        image = _opened(content)
    except Exception:  # as for decoding, which will tell what is wrong
        return None
    return image.height, image.width


def is_plain_jpeg(content: bytes) -> bool:
    """Tell whether these are the bytes of a whole RGB or grey JPEG that is stored upright."""
    # Pillow refuses a file that was cut off; other decoders would fill the rest with grey.
    if not content.startswith(b"\xff\xd8") or not content.rstrip(b"\0").endswith(b"\xff\xd9"):
        return False
    try:
        image = _opened(content, ("JPEG",))
    except Exception:  # as for decoding
        return False
    # Without its colour transform a file holds RGB as such, which decoders other than Pillow's take for YCbCr.
    is_usual = image.mode == "L" or (image.mode == "RGB" and image.info.get("adobe_transform") != 0)
    return image.format == "JPEG" and is_usual and _orientation(image) not in _UPRIGHT


def _opened(content: bytes, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """Open an image of a known format; its pixels are decoded when they are asked for."""
    with quiet_pillow():
        return Image.open(BytesIO(content), formats=formats)


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation, or nothing where there is none that can be read."""
    with quiet_pillow():
        try:
            return image.getexif().get(ExifTags.Base.Orientation)
        except Exception:  # damaged metadata fails with almost every kind of exception, and spoils no pixel
            return None


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Silence warnings about odd metadata, and raise the one about a decompression bomb."""
    with _FILTERS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _on_white(image: Image.Image) -> Image.Image:
    """Turn any mode into opaque RGB."""
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if not image.has_transparency_data:
        return _in_mode(image, "RGB")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white.convert("RGB")


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Convert an image that has another mode; Pillow would also copy one that has it, while all threads wait."""
    return image if image.mode == mode else image.convert(mode)


def _eight_bits(wide: npt.NDArray[np.generic]) -> Pixels:
    """Bring integers from 0..65535, and floats from 0..1 or 0..255, to 0..255; what lies outside is clipped."""
    values = np.nan_to_num(wide.astype(np.float64))
    if np.issubdtype(wide.dtype, np.integer):
        values = values / 257
    elif values.max() <= 1:
        values = values * 255
    return np.round(values).clip(0, 255).astype(np.uint8)


def _reason(error: Exception) -> str:
    """Say in a clause why Pillow refused an image."""
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"it has more than {Image.MAX_IMAGE_PIXELS} pixels"
    if isinstance(error, UnidentifiedImageError):
        return f"it is damaged, or none of {', '.join(FORMATS)}"
    return str(error) or type(error).__name__
