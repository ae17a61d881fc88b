"""Real files of every format and mode are read as they are meant to be seen."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
import pytest
from PIL import ExifTags, Image, ImageCms

from clare.data.images import IMAGE_SUFFIXES, decode_image, is_plain_jpeg
from clare.data.upright import foreign_profile
from clare.errors import DataError

COLOURS = np.array([[(200, 40, 30), (40, 180, 60)], [(30, 60, 210), (230, 220, 90)]], np.uint8)


def picture() -> Image.Image:
    """Return four even fields of colour."""
    return Image.fromarray(COLOURS.repeat(16, 0).repeat(16, 1))


def saved(kind: str, **options: Any) -> bytes:
    """Return a picture as the bytes of a file."""
    file = io.BytesIO()
    options.pop("image", picture()).save(file, kind, **options)
    return file.getvalue()


def heic() -> bytes:
    """Return the file of a telephone."""
    file = io.BytesIO()
    pillow_heif.from_pillow(picture()).save(file, quality=95)
    return file.getvalue()


def frames() -> bytes:
    """Return an animation whose second frame is black."""
    return saved("GIF", save_all=True, append_images=[Image.new("RGB", (32, 32))])


def deep_png() -> bytes:
    """Return a colour picture with 16 bits a channel, which Pillow reads and does not write."""
    import struct
    import zlib

    wide = np.asarray(picture()).astype(">u2") * 257
    lines = b"".join(b"\0" + line.tobytes() for line in wide)

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 32, 32, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def turned() -> bytes:
    """Return a picture that lies on its side, and says so."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    return saved("JPEG", image=picture().transpose(Image.Transpose.ROTATE_90), exif=exif, quality=95)


FILES: dict[str, tuple[Callable[[], bytes], int]] = {
    "jpeg": (lambda: saved("JPEG", quality=95), 12),
    "png": (lambda: saved("PNG"), 0),
    "webp": (lambda: saved("WEBP", lossless=True), 0),
    "avif": (lambda: saved("AVIF", quality=95), 12),
    "tiff": (lambda: saved("TIFF"), 0),
    "gif": (lambda: saved("GIF"), 2),
    "animation": (frames, 2),
    "heic": (heic, 14),
    "deep png": (deep_png, 0),
    "cmyk jpeg": (lambda: saved("JPEG", image=picture().convert("CMYK"), quality=95), 12),
    "cmyk tiff": (lambda: saved("TIFF", image=picture().convert("CMYK")), 0),
    "turned": (turned, 12),
}


@pytest.mark.parametrize("kind", FILES)
def test_colours_come_out_of_every_format(tmp_path: Path, kind: str) -> None:
    make, most = FILES[kind]
    path = tmp_path / "picture"
    path.write_bytes(make())
    pixels = decode_image(path, 3)
    # In the middle of each field, where no codec blurs.
    found = pixels[:, 8::16, 8::16].transpose(1, 2, 0).astype(int)
    assert pixels.shape == (3, 32, 32)
    assert np.abs(found - COLOURS).max() <= most


def test_grey_of_16_bits_is_brought_to_8() -> None:
    values = (np.arange(1024, dtype=np.uint16) * 64).reshape(32, 32)
    for kind in ("PNG", "TIFF"):
        found = decode_image(saved(kind, image=Image.fromarray(values)), 1)[0]
        assert np.abs(found.astype(float) - values / 257).max() <= 0.5


def gamma_profile() -> bytes:
    """Return sRGB's colours with a straight line in place of its curve, under another name."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    num_tags = int.from_bytes(profile[128:132], "big")
    for place in range(132, 132 + 12 * num_tags, 12):
        if profile[place : place + 4] in (b"rTRC", b"gTRC", b"bTRC"):
            start = int.from_bytes(profile[place + 4 : place + 8], "big")
            # A curve of no points is the straight line.
            profile[start : start + 12] = b"curv" + bytes(8)
            profile[place + 8 : place + 12] = (12).to_bytes(4, "big")
    return bytes(profile).replace(b"s\0R\0G\0B", b"l\0i\0n\0e").replace(b"sRGB", b"line")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
def test_colours_of_another_profile_become_those_of_srgb(kind: str) -> None:
    shade = Image.new("RGB", (32, 32), (55, 55, 55))
    found = decode_image(saved(kind, image=shade, icc_profile=gamma_profile()), 3)
    # A fifth of the light is 128 on the curve of sRGB.
    assert np.abs(found.astype(int) - 128).max() <= 4
    own = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert np.abs(decode_image(saved(kind, image=shade, icc_profile=own), 3).astype(int) - 55).max() <= 2


def test_a_profile_keeps_transparency_and_palettes_and_a_broken_one_is_passed_over() -> None:
    shade = Image.new("RGBA", (8, 8), (55, 55, 55, 255))
    shade.putpixel((0, 0), (55, 55, 55, 0))
    for image in (shade, shade.quantize(4)):
        found = decode_image(saved("PNG", image=image, icc_profile=gamma_profile()), 3)
        assert found[:, 0, 0].tolist() == [255, 255, 255]
        assert abs(int(found[0, 4, 4]) - 128) <= 2
    plain = Image.new("RGB", (8, 8), (55, 55, 55))
    assert decode_image(saved("PNG", image=plain, icc_profile=b"no profile"), 3)[0, 4, 4] == 55
    grey = decode_image(saved("PNG", image=plain.convert("L"), icc_profile=gamma_profile()), 1)
    assert grey[0, 4, 4] == 55


def test_a_jpeg_of_another_profile_is_no_plain_one() -> None:
    assert is_plain_jpeg(saved("JPEG"))
    content = saved("JPEG", icc_profile=gamma_profile())
    assert foreign_profile(Image.open(io.BytesIO(content))) is not None
    assert not is_plain_jpeg(content)


def test_heic_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(DataError, match=r"HEIC, which needs another package: pip install 'clare\[heic\]'"):
        decode_image(content, 3, "a.heic")
    assert {".avif", ".heic", ".heif"} <= IMAGE_SUFFIXES


def test_text_called_a_picture_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("hello")
    with pytest.raises(DataError, match=r"a\.jpg' cannot be read as an image \(it is damaged, or none of AVIF, BMP"):
        decode_image(tmp_path / "a.jpg", 3)
