"""Only real images of a bounded size become pixels."""

import numpy as np
import pytest
from fake_service import bomb, png
from hypothesis import given
from hypothesis import strategies as st

from clare.data.images import shrink_image
from clare.data.store import ImageStore
from clare.data.transforms import resize_centre_crop
from clare.serve import decoding
from clare.serve.decoding import Outcome, Wanted, cut_ends, decode
from clare.serve.limits import Limits, Refusal
from clare.serve.pictures import as_array, check_image, refusal_of


def refusal(content: bytes) -> Refusal | None:
    """Return why an image is refused, if it is."""
    answer = decode(content, Wanted(10_000, 1, 28))
    return None if answer.pixels is not None else refusal_of(answer, "some name", Limits())


@given(st.binary(max_size=200))
def test_bytes_are_an_image_or_are_refused_by_name(content: bytes) -> None:
    for start in (b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"P5 3 3 255\n"):
        refused = refusal(start + content)
        if refused is not None:
            assert refused.status in (413, 422)
            assert "'some name'" in str(refused)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_every_format_is_read(kind: str) -> None:
    pixels = decode(png(200, (20, 10), kind), Wanted(200, 3, 28)).pixels
    assert pixels is not None
    assert pixels.shape == (3, 10, 20)
    assert np.abs(pixels.astype(int) - 200).max() <= 3


def test_no_pixel_is_decoded_of_an_image_with_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(decoding, "decode_image", fail)
    # From some number on Pillow warns, and from another on it refuses, by itself.
    for side in (1_000, 10_000, 30_000):
        answer = decode(bomb(side), Wanted(999_999, 1, 28))
        assert answer.outcome is Outcome.TOO_MANY_PIXELS
        refused = refusal_of(answer, "a", Limits())
        assert (refused.status, "pixels" in str(refused)) == (413, True)
    assert check_image(bomb(1_000), "a", Limits(image_pixels=1_000_000)) == 1_000_000


@pytest.mark.parametrize("content", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg></svg>", b""])
def test_what_other_programs_would_draw_is_no_image(content: bytes) -> None:
    with pytest.raises(Refusal, match=r"'x\.png' is no image"):
        check_image(content, "x.png", Limits())


@given(st.integers(1, 60), st.integers(1, 60))
def test_the_middle_of_a_long_image_is_kept(height: int, width: int) -> None:
    pixels = np.arange(height * width, dtype=np.uint32).astype(np.uint8).reshape(1, height, width)
    kept = cut_ends(pixels)
    shorter = min(height, width)
    assert min(kept.shape[1:]) == shorter
    assert max(kept.shape[1:]) <= 2 * shorter + 1
    if max(height, width) <= 2 * shorter + 1:
        assert kept.shape == pixels.shape
    top, left = (height - kept.shape[1]) // 2, (width - kept.shape[2]) // 2
    assert np.array_equal(kept, pixels[:, top : height - top, left : width - left])


@pytest.mark.parametrize("size", [(40, 200), (201, 40), (28, 500), (28, 57)])
def test_a_model_sees_the_same_of_an_image_without_its_ends(size: tuple[int, int]) -> None:
    pixels = shrink_image(np.random.RandomState(0).randint(0, 256, (1, *size)).astype(np.uint8), 28)

    def seen(image: np.ndarray) -> np.ndarray:
        store = ImageStore.from_images([image])
        return resize_centre_crop(store.batch(store.sizes.new_zeros(1)), 28, 28, "bicubic").numpy()

    assert np.allclose(seen(cut_ends(pixels)), seen(pixels), atol=0.01)


def test_arrays_have_channels_last() -> None:
    assert as_array(np.zeros((1, 2, 3), np.uint8)).shape == (2, 3)
    assert as_array(np.zeros((3, 4, 5), np.uint8)).shape == (4, 5, 3)
