"""Files become images in order and a few at a time, and what one decoder refuses the other takes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from clare.data import decode
from clare.data.decode import (
    Room,
    append_all,
    decode_or_leave,
    gpu_decoder,
    map_ahead,
    measure,
    read_images,
    shrink_images,
)
from clare.data.images import decode_image, is_plain_jpeg, shrink_image
from clare.data.settings import DataSettings
from clare.errors import DataError, SettingsError

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def form_of(channels: int, store_size: int, skip_bad_images: bool) -> DataSettings:
    """Return what shall become of image files."""
    values = {"channels": channels, "store_size": store_size, "skip_bad_images": skip_bad_images}
    return DataSettings.model_validate({"dataset": "folder", **values})


RGB = form_of(3, 0, False)
ORIENTATION = 0x0112


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """Return a smooth coloured picture, as photographs are."""
    coarse = np.random.RandomState(seed).randint(0, 256, (4, 5, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, file_format: str = "JPEG", **options: object) -> bytes:
    """Return the picture as the bytes of a file."""
    buffer = BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def turned(orientation: int) -> bytes:
    """Return a JPEG that is to be turned before it is shown."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded(picture(20, 30), exif=exif)


def write(folder: Path, contents: dict[str, bytes]) -> list[Path]:
    """Write files and return their paths."""
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


class FakeGpu:
    """A decoder that marks what it decoded by inverting it, and refuses some files."""

    def __init__(self, refuses: Callable[[bytes], bool] = lambda content: False) -> None:
        self.refuses = refuses
        self.num_calls: list[int] = []

    def __call__(self, contents: list[bytes], channels: int) -> list[Tensor]:
        """Decode files, none of them if one is refused."""
        self.num_calls.append(len(contents))
        if any(self.refuses(content) for content in contents):
            raise RuntimeError("cannot decode")
        return [torch.from_numpy(255 - decode_image(content, channels)) for content in contents]


def test_files_are_read_in_order(tmp_path: Path) -> None:
    paths = write(tmp_path, {f"{n:03d}.png": encoded(picture(5, 6, n), "PNG") for n in range(200)})
    images = list(read_images(paths, RGB))
    assert len(images) == 200
    for path, image in zip(paths, images, strict=True):
        assert image is not None
        assert image.is_contiguous()
        assert np.array_equal(image.numpy(), decode_image(path, 3))


@given(num_items=st.integers(0, 30), num_ahead=st.integers(1, 8))
def test_only_so_many_are_made_ahead(num_items: int, num_ahead: int) -> None:
    started: list[int] = []
    num_asked = 0

    def items() -> Iterator[int]:
        for item in range(num_items):
            started.append(item)
            assert len(started) - num_asked <= num_ahead
            yield item

    with ThreadPoolExecutor(2) as pool:
        for item, made in enumerate(map_ahead(pool, lambda item: 10 * item, items(), num_ahead)):
            assert made == 10 * item
            num_asked += 1
    assert num_asked == num_items


def test_a_bad_file_is_raised_or_left_out(tmp_path: Path) -> None:
    paths = write(tmp_path, {"a.png": encoded(picture(5, 6), "PNG"), "b.png": b"bad", "c.jpg": turned(6)})
    for decoder in (None, FakeGpu()):
        with pytest.raises(DataError, match=r"b\.png"):
            list(read_images(paths, RGB, decoder))
        sizes, skipped = append_all(read_images(paths, form_of(3, 0, True), decoder), lambda image: None)
        assert skipped == [1]
        assert sizes.tolist() == [[5, 6], [30, 20]]


def test_nothing_appended_has_sizes_too() -> None:
    sizes, skipped = append_all([None, None], lambda image: None)
    assert sizes.shape == (0, 2)
    assert skipped == [0, 1]


@pytest.mark.parametrize("store_size", [0, 8])
def test_headers_tell_the_room_that_images_take(tmp_path: Path, store_size: int) -> None:
    contents = {"a.png": encoded(picture(5, 90), "PNG"), "b.jpg": turned(6), "c.png": b"bad", "d.gif": b""}
    paths = write(tmp_path, contents)
    images = [image for image in read_images(paths, form_of(3, store_size, True)) if image is not None]
    longest = max(max(image.shape[1:]) for image in images)
    assert measure(paths, form_of(3, store_size, True)) == Room(sum(image.numel() for image in images), longest)
    assert measure(paths[2:], RGB) == Room(0, 0)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (encoded(picture(20, 30)), True),
        (encoded(picture(20, 30).convert("L")), True),
        (encoded(picture(20, 30), progressive=True), True),
        (turned(1), True),
        (turned(6), False),
        (encoded(picture(20, 30).convert("CMYK")), False),
        (encoded(picture(20, 30))[:-2], False),
        (encoded(picture(20, 30)) + b"\0\0\0", True),
        (encoded(picture(20, 30), "PNG"), False),
        (b"\xff\xd8 nonsense \xff\xd9", False),
        (b"", False),
    ],
    ids=["rgb", "grey", "progressive", "upright", "turned", "cmyk", "cut", "filled up", "png", "damaged", "empty"],
)
def test_plain_jpegs_are_told_from_others(content: bytes, expected: bool) -> None:
    assert is_plain_jpeg(content) is expected


def test_the_gpu_gets_plain_jpegs_and_pillow_the_rest(tmp_path: Path) -> None:
    contents = {
        "a.jpg": encoded(picture(20, 30, 1)),
        "b.png": encoded(picture(20, 30, 2), "PNG"),
        "c.jpg": turned(6),
        "d.jpg": encoded(picture(25, 30, 3)),
    }
    paths = write(tmp_path, contents)
    gpu = FakeGpu()
    images = list(read_images(paths, RGB, gpu))
    assert gpu.num_calls == [2]
    for path, image, is_by_gpu in zip(paths, images, [True, False, False, True], strict=True):
        expected = decode_image(path, 3)
        assert image is not None
        assert np.array_equal(image.numpy(), 255 - expected if is_by_gpu else expected)


def test_what_the_gpu_refuses_goes_to_pillow(tmp_path: Path) -> None:
    paths = write(tmp_path, {f"{n}.jpg": encoded(picture(20, 20 + n, n)) for n in range(5)})
    refused = paths[3].read_bytes()
    gpu = FakeGpu(lambda content: content == refused)
    images = list(read_images(paths, RGB, gpu))
    assert gpu.num_calls == [5, 1, 1, 1, 1, 1]
    for n, (path, image) in enumerate(zip(paths, images, strict=True)):
        expected = decode_image(path, 3)
        assert image is not None
        assert np.array_equal(image.numpy(), expected if n == 3 else 255 - expected)


def test_files_come_to_the_gpu_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "NUM_TOGETHER", 3)
    paths = write(tmp_path, {f"{n}.jpg": encoded(picture(20, 20 + n, n)) for n in range(7)})
    gpu = FakeGpu()
    images = list(read_images(paths, form_of(1, 16, False), gpu))
    assert gpu.num_calls == [3, 3, 1]
    assert [tuple(image.shape) for image in images if image is not None] == [
        (1, 16, 16 * (20 + n) // 20) for n in range(7)
    ]


def test_a_decoder_that_fails_for_all_leaves_all() -> None:
    assert decode_or_leave([b"a", b"b"], 3, FakeGpu(lambda content: True)) == [None, None]
    assert decode_or_leave([], 3, FakeGpu(lambda content: True)) == []


@settings(max_examples=40)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 80), st.integers(1, 80)), max_size=5),
    channels=st.sampled_from([1, 3]),
    shorter_side=st.integers(0, 40),
    limit=st.sampled_from([1, 10_000, 1 << 25]),
)
def test_images_are_shrunk_together_as_alone(
    shapes: list[tuple[int, int]], channels: int, shorter_side: int, limit: int
) -> None:
    random = np.random.RandomState(0)
    images = [random.randint(0, 256, (channels, *shape)).astype(np.uint8) for shape in shapes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "MAX_PADDED_PIXELS", limit)
        small = shrink_images([torch.from_numpy(image) for image in images], shorter_side)
    for image, found in zip(images, small, strict=True):
        expected = shrink_image(image, shorter_side)
        assert found.dtype == torch.uint8
        assert found.shape == expected.shape
        # A tie between two levels can fall either way in each of the two passes.
        assert np.abs(found.numpy().astype(int) - expected).max() <= 2


def test_decoding_on_the_gpu_is_refused_without_one() -> None:
    with pytest.raises(SettingsError, match=r"`data.decode` is gpu, but this run is on the CPU; set it to cpu"):
        gpu_decoder(torch.device("cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_a_decoder_that_does_not_work_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"torchvision cannot decode JPEG on cuda:0 \(.+\); set it to cpu"):
        gpu_decoder(torch.device("cuda", 0))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("subsampling", "store_size", "greatest", "mean"),
    # Where colours are stored at half the resolution, Pillow interpolates them and the GPU repeats them.
    [(0, 0, 4, 0.1), (0, 64, 4, 0.1), (2, 0, 20, 2.5), (2, 64, 8, 0.8)],
)
def test_the_gpu_decodes_as_pillow_within_a_few_levels(
    tmp_path: Path, channels: int, subsampling: int, store_size: int, greatest: int, mean: float
) -> None:
    contents = {
        f"{n}.jpg": encoded(picture(100 + 7 * n, 130 - n, n), quality=92, subsampling=subsampling) for n in range(9)
    }
    contents |= {"grey.jpg": encoded(picture(90, 90).convert("L")), "turned.jpg": turned(6)}
    contents |= {"progressive.jpg": encoded(picture(90, 99), progressive=True, subsampling=subsampling)}
    contents |= {"a.png": encoded(picture(99, 90), "PNG")}
    form = form_of(channels, store_size, False)
    paths = write(tmp_path, contents)
    for path, found, expected in zip(
        paths,
        read_images(paths, form, gpu_decoder(torch.device("cuda", 0))),
        read_images(paths, form),
        strict=True,
    ):
        assert found is not None
        assert expected is not None
        difference = (found.cpu().int() - expected.int()).abs()
        assert difference.max() <= (greatest if channels == 3 else 4), path.name
        assert difference.float().mean() <= (mean if channels == 3 else 0.1), path.name


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
def test_a_damaged_jpeg_is_refused_with_a_gpu_as_without(tmp_path: Path) -> None:
    whole = encoded(picture(100, 100))
    paths = write(tmp_path, {"a.jpg": whole, "cut.jpg": whole[: len(whole) // 2], "b.jpg": whole})
    gpu = gpu_decoder(torch.device("cuda", 0))
    with pytest.raises(DataError, match=r"cut\.jpg"):
        list(read_images(paths, RGB, gpu))
    assert [image is None for image in read_images(paths, form_of(3, 0, True), gpu)] == [False, True, False]
