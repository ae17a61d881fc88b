"""Every mode of image becomes the same upright RGB or grey, and bad files are refused by name."""

import contextlib
import struct
import threading
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from clare.data.images import IMAGE_SUFFIXES, NUM_HEADER_BYTES, decode_image, image_size, shrink_image, stored_size
from clare.errors import DataError

RED, BLUE, WHITE, BLACK = (255, 0, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def encode(image: Image.Image, file_format: str = "PNG", **options: object) -> bytes:
    """Return the image as the bytes of a file."""
    buffer = BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def decoded_pixels(content: bytes) -> list[tuple[int, ...]]:
    """Return the decoded RGB pixels row by row."""
    return [tuple(pixel) for pixel in decode_image(content, 3).reshape(3, -1).T.tolist()]


def header_only_png(width: int, height: int) -> bytes:
    """Return a PNG that claims a size and holds almost no pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 8)) + chunk(b"IEND", b"")
    )


def test_rgb_and_grey_keep_their_layout() -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    decoded = decode_image(encode(Image.fromarray(pixels)), 3)
    assert decoded.shape == (3, 2, 3)
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    assert np.array_equal(decoded, pixels.transpose(2, 0, 1))
    grey = decode_image(encode(Image.fromarray(pixels)), 1)
    assert np.array_equal(grey[0], np.asarray(Image.fromarray(pixels).convert("L")))


def test_grey_is_the_same_in_three_channels() -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    content = encode(Image.fromarray(ramp))
    assert np.array_equal(decode_image(content, 1), ramp[None])
    assert np.array_equal(decode_image(content, 3), np.stack([ramp] * 3))


def test_alpha_is_put_on_white() -> None:
    image = Image.new("RGBA", (3, 1))
    for column, alpha in enumerate((0, 255, 128)):
        image.putpixel((column, 0), (255, 0, 0, alpha))
    clear, solid, half = decoded_pixels(encode(image))
    assert (clear, solid) == (WHITE, RED)
    assert half == pytest.approx((255, 127, 127), abs=1)


def test_grey_alpha_is_put_on_white() -> None:
    image = Image.new("LA", (2, 1))
    image.putpixel((0, 0), (0, 0))
    image.putpixel((1, 0), (0, 255))
    assert decoded_pixels(encode(image)) == [WHITE, BLACK]
    assert decode_image(encode(image), 1).tolist() == [[[255, 0]]]


@pytest.mark.parametrize("transparency", [None, 1, b"\xff\x00"])
def test_palettes(transparency: int | bytes | None) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *BLUE])
    image.putpixel((1, 0), 1)
    options = {} if transparency is None else {"transparency": transparency}
    assert decoded_pixels(encode(image, **options)) == [RED, BLUE if transparency is None else WHITE]


@pytest.mark.parametrize(("mode", "ink", "paper"), [("L", 7, 200), ("RGB", (7, 7, 7), (200, 200, 200))])
def test_a_transparent_colour_is_put_on_white(mode: str, ink: int, paper: int) -> None:
    image = Image.new(mode, (2, 1), paper)
    image.putpixel((0, 0), ink)
    assert decoded_pixels(encode(image, transparency=ink)) == [WHITE, (200, 200, 200)]


def test_transparent_gif() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *BLUE])
    image.putpixel((1, 0), 1)
    assert decoded_pixels(encode(image, "GIF", transparency=0)) == [WHITE, BLUE]


def test_cmyk() -> None:
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    decoded = decode_image(encode(image, "JPEG", quality=100), 3)
    assert decoded[:, 8, 8].tolist() == pytest.approx(RED, abs=3)
    assert decode_image(encode(image, "TIFF"), 1)[0, 0, 0] == 76


def test_one_bit() -> None:
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert decode_image(encode(image), 1).tolist() == [[[0, 255]]]


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_sixteen_bit_grey_spans_the_whole_range(file_format: str) -> None:
    wide = np.array([[0, 257, 65000, 65535]], dtype=np.uint16)
    assert decode_image(encode(Image.fromarray(wide), file_format), 1).tolist() == [[[0, 1, 253, 255]]]


def test_thirty_two_bit_grey_is_clipped_to_sixteen() -> None:
    wide = np.array([[-5, 257, 65535, 1_000_000]], dtype=np.int32)
    image = Image.fromarray(wide)
    assert image.mode == "I"
    assert decode_image(encode(image, "TIFF"), 1).tolist() == [[[0, 1, 255, 255]]]


@pytest.mark.parametrize(
    ("values", "expected"), [([0.0, 0.5, 1.0], [0, 128, 255]), ([0.0, 100.4, 300.0], [0, 100, 255])]
)
def test_float_grey(values: list[float], expected: list[int]) -> None:
    image = Image.fromarray(np.array([values], dtype=np.float32))
    assert decode_image(encode(image, "TIFF"), 1).tolist() == [[expected]]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientation(orientation: int, file_format: str) -> None:
    stored = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6) * 10).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encode(stored, file_format, exif=exif)
    with Image.open(BytesIO(content)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB")).transpose(2, 0, 1)
    assert expected.shape == ((3, 4, 6) if orientation < 5 else (3, 6, 4))
    assert np.array_equal(decode_image(content, 3), expected)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("metadata", [b"Exif\0\0MM\0*\0\0\0\x08\0\x09" + b"\xff" * 30, b"Exif\0\0garbage"])
def test_nonsense_metadata_is_ignored_in_silence(file_format: str, metadata: bytes) -> None:
    content = encode(Image.new("RGB", (16, 16), WHITE), file_format, exif=metadata)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert decoded_pixels(content) == [WHITE] * 256
    assert caught == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"this is text",
        encode(Image.new("RGB", (64, 64), RED))[:60],
        encode(Image.effect_noise((64, 64), 50), "JPEG")[:700],
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        encode(Image.new("RGB", (4, 4), RED), "PCX"),
        b"P6 0 5 255\n",
    ],
    ids=["empty", "text", "short png", "short jpeg", "postscript", "a format not listed", "no width"],
)
def test_bad_files_are_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cat\.png'.*replace or remove it, or pass --skip-bad-images$"):
        decode_image(path, 3)
    with pytest.raises(DataError, match=r"^'upload 3' cannot be read"):
        decode_image(content, 3, name="upload 3")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.png"):
        decode_image(tmp_path / "gone.png", 3)


@pytest.mark.parametrize("side", [10_000, 60_000], ids=["Pillow warns", "Pillow refuses"])
def test_decompression_bombs_are_refused(side: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(DataError, match="pixels"):
            decode_image(header_only_png(side, side), 3)
    assert caught == []


def test_threads_change_the_warning_filters_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode(Image.new("RGB", (2, 2), RED))
    before = list(warnings.filters)
    really_open = Image.open
    inside = threading.Semaphore(1)

    def open_alone(*arguments: Any, **options: Any) -> Image.Image:
        assert inside.acquire(blocking=False)
        time.sleep(0.01)
        inside.release()
        return really_open(*arguments, **options)

    monkeypatch.setattr(Image, "open", open_alone)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: decode_image(content, 3).shape == (3, 2, 2), range(8)))
    assert list(warnings.filters) == before


def test_channels_are_one_or_three() -> None:
    with pytest.raises(DataError, match="4 channels"):
        decode_image(encode(Image.new("RGB", (1, 1))), 4)


@settings(max_examples=150, deadline=None)
@given(
    cut=st.integers(0, 400), flipped=st.integers(0, 400), file_format=st.sampled_from(["PNG", "JPEG", "GIF", "TIFF"])
)
def test_damaged_bytes_give_an_image_or_a_data_error(cut: int, flipped: int, file_format: str) -> None:
    content = bytearray(encode(Image.linear_gradient("L").resize((20, 20)), file_format))
    content[flipped % len(content)] ^= 0xFF
    with contextlib.suppress(DataError):
        assert decode_image(bytes(content[: max(1, len(content) - cut)]), 3).shape[0] == 3


@pytest.mark.parametrize(
    ("shape", "expected"), [((3, 50, 101), (3, 20, 40)), ((1, 90, 30), (1, 60, 20)), ((3, 20, 70), (3, 20, 70))]
)
def test_shrinking_sets_the_shorter_side(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    image = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
    small = shrink_image(image, 20)
    assert small.shape == expected
    if shape == expected:
        assert np.array_equal(small, image)


def test_shrinking_an_rgb_image_is_what_pillow_does() -> None:
    image = np.random.RandomState(0).randint(0, 256, (50, 80, 3)).astype(np.uint8)
    expected = np.asarray(Image.fromarray(image).resize((32, 20), Image.Resampling.BICUBIC))
    assert np.array_equal(shrink_image(image.transpose(2, 0, 1), 20), expected.transpose(2, 0, 1))


def test_suffixes_are_lower_case_with_a_dot() -> None:
    assert {".jpg", ".jpeg", ".png"} <= IMAGE_SUFFIXES
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in IMAGE_SUFFIXES)


@pytest.mark.parametrize("file_format", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_the_size_is_read_without_decoding(file_format: str, tmp_path: Path) -> None:
    noise = Image.effect_noise((170, 190), 80).convert("RGB")
    (tmp_path / "image").write_bytes(encode(noise, file_format))
    assert image_size(tmp_path / "image") == (190, 170)


def test_the_size_behind_much_metadata_is_found(tmp_path: Path) -> None:
    path = tmp_path / "image.jpg"
    path.write_bytes(encode(Image.new("RGB", (7, 9)), "JPEG", icc_profile=b"x" * 10 * NUM_HEADER_BYTES))
    assert image_size(path) == (9, 7)


def test_what_is_no_image_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    (tmp_path / "bomb").write_bytes(header_only_png(60_000, 60_000))
    assert [image_size(tmp_path / name) for name in ("text", "bomb", "gone")] == [None] * 3


@given(height=st.integers(1, 500), width=st.integers(1, 500), shorter_side=st.integers(0, 300))
def test_the_stored_size_is_the_same_for_a_turned_image(height: int, width: int, shorter_side: int) -> None:
    size = stored_size(height, width, shorter_side)
    assert stored_size(width, height, shorter_side) == size[::-1]
    assert min(size) == min(height, width, shorter_side or 500)
    if shorter_side == 0:
        assert size == (height, width)
