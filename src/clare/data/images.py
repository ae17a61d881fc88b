"""The one place where encoded images become uint8 arrays."""

from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from clare.data.upright import UPRIGHT, foreign_profile, orientation, upright
from clare.data.upright import Pixels as Pixels
from clare.data.upright import quiet_pillow as quiet_pillow
from clare.errors import DataError


class Part(NamedTuple):
    """Images of one size, (N, C, H, W), with the positions of their classes in the alphabet."""

    images: Pixels
    labels: list[int]


IMAGE_SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm"}
    | {".tif", ".tiff", ".webp"}
)

# Almost all images tell their size in these first bytes.
NUM_HEADER_BYTES = 1 << 14

# A closed list: Pillow would otherwise hand some files to outside programs, such as PostScript to Ghostscript.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1")
"""What stands behind `ftyp` in the files of telephones, for which Pillow needs another package."""


def decode_image(source: Path | bytes, channels: int, name: str = "") -> Pixels:
    """Decode an image upright and on white to uint8 (channels, height, width); 3 channels are RGB, 1 is grey."""
    if channels not in (1, 3):
        raise DataError(f"an image cannot have {channels} channels here; ask for 1 (grey) or 3 (RGB)")
    shown = name or (str(source) if isinstance(source, Path) else "the image")
    try:
        image = _opened(source.read_bytes() if isinstance(source, Path) else source)
        image.load()
        return to_pixels(image, channels)
    except FileNotFoundError:
        raise DataError(f"there is no file '{shown}'; check its name, or pass --skip-bad-images") from None
    except Exception as error:  # decoders fail on damaged bytes with almost every kind of exception
        raise DataError(
            f"'{shown}' cannot be read as an image ({_reason(error)}); replace or remove it, or pass --skip-bad-images"
        ) from None


def to_pixels(image: Image.Image, channels: int) -> Pixels:
    """Return a picture of any mode, upright and on white, as uint8 (channels, height, width)."""
    pixels = np.asarray(upright(image, "RGB" if channels == 3 else "L"))
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
            return size_in(start) or size_in(start + file.read())
    except OSError:
        return None


def size_in(content: bytes) -> tuple[int, int] | None:
    """Return height and width of an image of which the header is there."""
    try:
        image = _opened(content)
    except Exception:  # as for decoding, which will tell what is wrong
        return None
    return image.height, image.width


def is_plain_jpeg(content: bytes) -> bool:
    """Tell whether these are the bytes of a whole RGB or grey JPEG that is stored upright and in sRGB."""
    # Pillow refuses a file that was cut off; other decoders would fill the rest with grey.
    if not content.startswith(b"\xff\xd8") or not content.rstrip(b"\0").endswith(b"\xff\xd9"):
        return False
    try:
        image = _opened(content, ("JPEG",))
    except Exception:  # as for decoding
        return False
    # Without its colour transform a file holds RGB as such, which decoders other than Pillow's take for YCbCr.
    is_usual = image.mode == "L" or (image.mode == "RGB" and image.info.get("adobe_transform") != 0)
    is_plain = orientation(image) not in UPRIGHT and foreign_profile(image) is None
    return image.format == "JPEG" and is_usual and is_plain


def _opened(content: bytes, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """Open an image of a known format; its pixels are decoded when they are asked for."""
    is_heic = content[4:8] == b"ftyp" and content[8:12] in HEIC_BRANDS and b"avif" not in content[:64]
    with quiet_pillow():
        return Image.open(BytesIO(content), formats=_with_heic() if is_heic else formats)


def _with_heic() -> tuple[str, ...]:
    """Return the formats with that of telephones, where the package for it is there."""
    try:
        from pillow_heif import register_heif_opener
    except ModuleNotFoundError:
        raise DataError("it is HEIC, which needs another package: pip install 'clare[heic]'") from None
    register_heif_opener()
    return (*FORMATS, "HEIF")


def _reason(error: Exception) -> str:
    """Say in a clause why Pillow refused an image."""
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"it has more than {Image.MAX_IMAGE_PIXELS} pixels"
    if isinstance(error, UnidentifiedImageError):
        return f"it is damaged, or none of {', '.join(FORMATS)}"
    return str(error) or type(error).__name__
