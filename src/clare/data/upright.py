"""Pictures of any mode as they are meant to be seen: upright, opaque on white, in eight bits of sRGB.

This file needs Pillow and NumPy alone: an export takes it along, so that its pictures are read as here.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageCms

Pixels = npt.NDArray[np.uint8]
UPRIGHT: dict[object, Image.Transpose] = {
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


def upright(image: Image.Image, mode: str) -> Image.Image:
    """Return a picture upright and on white, as `RGB` or in grey as `L`."""
    turn = UPRIGHT.get(orientation(image))
    return _in_mode(_on_white(image if turn is None else image.transpose(turn)), mode)


def orientation(image: Image.Image) -> object:
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


def foreign_profile(image: Image.Image) -> bytes | None:
    """Return the colour profile of a picture that has another than sRGB."""
    profile = image.info.get("icc_profile")
    # Its description says so, in one byte a character or in two.
    return profile if profile and b"sRGB" not in profile.replace(b"\0", b"") else None


def _in_srgb(image: Image.Image) -> Image.Image:
    """Bring a picture with a colour profile of its own to sRGB; a profile that cannot be used is passed over."""
    profile = foreign_profile(image)
    if profile is None:
        return image
    kept = _in_mode(image, "RGBA" if image.has_transparency_data else "RGB") if image.mode in ("P", "PA") else image
    try:
        own = ImageCms.ImageCmsProfile(BytesIO(profile))
        mode = "RGBA" if kept.mode == "RGBA" else "RGB"
        found = ImageCms.profileToProfile(kept, own, ImageCms.createProfile("sRGB"), outputMode=mode)
    except (ImageCms.PyCMSError, OSError, ValueError):
        return image
    return image if found is None else found


def _on_white(image: Image.Image) -> Image.Image:
    """Turn any mode into opaque RGB."""
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    image = _in_srgb(image)
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
