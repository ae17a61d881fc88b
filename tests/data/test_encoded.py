"""A store of files gives the pixels of the decoded store, to the bit unless it was asked to shrink them."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from clare.data import encoded, trees
from clare.data.encoded import EncodedStore, kept_of
from clare.data.images import decode_image, shrink_image
from clare.data.placement import Machine
from clare.data.settings import DataSettings
from clare.data.sources import Dataset, load_dataset
from clare.errors import DataError

CPU = torch.device("cpu")
FULL = Machine(CPU, 0, 0)
"""A machine on which nothing fits."""
ROOMY = Machine(CPU, 1 << 40, 1 << 40)
ORIENTATION = 0x0112


def picture(height: int, width: int, seed: int) -> Image.Image:
    """Return a smooth coloured picture, as photographs are."""
    coarse = np.random.RandomState(seed).randint(0, 256, (4, 5, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def write_tree(root: Path) -> list[Path]:
    """Write pictures of many kinds: plain and turned JPEGs, CMYK, grey, a palette, a PNG with a hole in it."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    pictures = {
        "0.jpg": (picture(40, 60, 0), {}),
        "1.jpg": (picture(30, 50, 1), {"exif": exif}),
        "2.jpg": (picture(25, 20, 2).convert("CMYK"), {}),
        "3.jpg": (picture(90, 33, 3).convert("L"), {"progressive": True}),
        "4.gif": (picture(28, 35, 4).convert("P"), {}),
        "5.png": (picture(44, 44, 5).convert("RGBA"), {}),
    }
    paths = []
    for part in ("train", "test"):
        (root / part / "ant").mkdir(parents=True)
        for name, (image, options) in pictures.items():
            paths.append(root / part / "ant" / name)
            image.save(paths[-1], **options)
    return paths


def load(root: Path, machine: Machine = FULL, notices: list[str] | None = None, **values: Any) -> Dataset:
    """Read a tree of pictures, with the cache beside it."""
    form = {"dataset": "folder", "root": str(root / "tree"), "cache": str(root / "cache"), **values}
    return load_dataset(DataSettings.model_validate(form), machine, (notices if notices is not None else []).append)


def pixels(dataset: Dataset) -> torch.Tensor:
    """Return all training images of a data set in another order."""
    return dataset.train.batch(torch.tensor([3, 0, 5, 1, 4, 2]))[0].pixels


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("store_size", [0, 26])
def test_what_does_not_fit_stays_encoded_and_loses_no_bit(tmp_path: Path, channels: int, store_size: int) -> None:
    paths = write_tree(tmp_path / "tree")
    form = {"channels": channels, "store_size": store_size}
    dataset = load(tmp_path, **form)
    assert isinstance(dataset.train.store, EncodedStore)
    assert dataset.train.store.num_bytes == sum(path.stat().st_size for path in paths[:6])
    assert torch.equal(pixels(dataset), pixels(load(tmp_path, ROOMY, **form)))
    canvas, _ = dataset.train.batch(torch.arange(6))
    for path, image, (height, width) in zip(paths, canvas.pixels, canvas.sizes.tolist(), strict=False):
        expected = shrink_image(decode_image(path, channels), store_size)
        assert np.array_equal(image[:, :height, :width].numpy(), expected)


def test_images_of_one_size_are_a_uniform_store(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / "tree" / part / "ant").mkdir(parents=True)
        for number in range(6):
            picture(20, 30, number).save(tmp_path / "tree" / part / "ant" / f"{number}.jpg")
    dataset = load(tmp_path)
    assert dataset.train.store.is_uniform
    assert torch.equal(pixels(dataset), pixels(load(tmp_path, ROOMY)))


def test_shrinking_is_asked_for_and_near(tmp_path: Path) -> None:
    paths = write_tree(tmp_path / "tree")
    large = picture(400, 500, 9)
    large.save(paths[0], quality=95)
    plain, small = (load(tmp_path, store_size=200, store=store) for store in ("auto", "encoded"))
    assert torch.equal(plain.train.store.sizes, small.train.store.sizes)
    assert small.train.store.num_bytes < plain.train.store.num_bytes
    found, exact = (dataset.train.batch(torch.arange(6))[0].pixels for dataset in (small, plain))
    kept = kept_of(paths[0], DataSettings(dataset="folder", store_size=200, store="encoded"))
    assert kept is not None
    with Image.open(BytesIO(kept[0])) as image:
        assert (image.format, image.size) == ("JPEG", (250, 200))
        assert np.array_equal(found[0, :, :200, :250].numpy(), np.asarray(image).transpose(2, 0, 1))
    # What is not larger than asked for is kept as it is.
    assert torch.equal(found[1:], exact[1:])
    assert 0 < (found[0].int() - exact[0].int()).abs().float().mean() < 3


def test_the_second_run_reads_no_file_and_a_changed_one_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_tree(tmp_path / "tree")
    notices: list[str] = []
    before = pixels(load(tmp_path, notices=notices))
    assert len(notices) == 2
    assert all(".files' is" not in text and text.startswith("images are kept in") for text in notices)
    with monkeypatch.context() as patch:
        for module, name in ((encoded, "kept_of"), (trees, "measure"), (trees, "read_images")):
            patch.setattr(module, name, None)
        assert torch.equal(pixels(load(tmp_path, notices=notices)), before)
    assert len(notices) == 2
    # The room that pixels need is known from the file, and where there is room they are decoded.
    assert torch.equal(pixels(load(tmp_path, ROOMY)), before)
    picture(40, 60, 7).save(paths[0])
    assert not torch.equal(pixels(load(tmp_path, notices=notices)), before)
    assert "other files or settings" in notices[-1]


def test_pixels_that_an_earlier_run_decoded_are_taken_unless_files_are_asked_for(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    load(tmp_path, store="mapped")
    assert not isinstance(load(tmp_path).train.store, EncodedStore)
    assert isinstance(load(tmp_path, store="encoded").train.store, EncodedStore)


def without_tables(content: bytes) -> bytes:
    """Return a JPEG that begins and ends as it should and does not say how its numbers are scaled."""
    return content.replace(b"\xff\xdb", b"\xff\xec")


@pytest.mark.parametrize("content", [b"", b"no image", None], ids=["empty", "foreign", "cut"])
def test_a_bad_file_is_named_or_left_out(tmp_path: Path, content: bytes | None) -> None:
    paths = write_tree(tmp_path / "tree")
    paths[0].write_bytes(paths[0].read_bytes()[:-200] if content is None else content)
    with pytest.raises(DataError, match=r"train/ant/0\.jpg.*--skip-bad-images"):
        load(tmp_path)
    dataset = load(tmp_path, skip_bad_images=True)
    assert (len(dataset.train), dataset.num_skipped) == (5, 1)


def test_a_file_that_fails_behind_its_header_is_named_by_the_batch_or_left_out(tmp_path: Path) -> None:
    paths = write_tree(tmp_path / "tree")
    paths[0].write_bytes(without_tables(paths[0].read_bytes()))
    dataset = load(tmp_path)
    with pytest.raises(DataError, match=r"train/ant/0\.jpg.*--skip-bad-images"):
        pixels(dataset)
    assert len(load(tmp_path, skip_bad_images=True).train) == 5


def test_a_gpu_decodes_what_it_can_and_pillow_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "tree")
    calls: list[int] = []

    def inverting(contents: list[bytes], channels: int) -> list[torch.Tensor]:
        calls.append(len(contents))
        return [torch.from_numpy(255 - decode_image(content, channels)) for content in contents]

    monkeypatch.setattr(trees, "gpu_decoder", lambda device: inverting)
    found, plain = (load(tmp_path, decode=decode, store_size=26) for decode in ("gpu", "cpu"))
    canvas, expected = (dataset.train.batch(torch.arange(6))[0] for dataset in (found, plain))
    assert calls == [2]
    for number, (height, width) in enumerate(canvas.sizes.tolist()):
        image, other = (each.pixels[number, :, :height, :width].int() for each in (canvas, expected))
        if number in (0, 3):
            assert ((255 - image) - other).abs().max() <= 1
        else:
            assert torch.equal(image, other)


def test_a_file_with_a_side_too_long_for_jpeg_is_kept_as_it_is(tmp_path: Path) -> None:
    Image.new("L", (70_000, 4), 128).save(tmp_path / "long.png")
    form = DataSettings(dataset="folder", store_size=3, store="encoded", channels=1)
    kept = kept_of(tmp_path / "long.png", form)
    assert kept is not None
    assert kept[1] == (3, 52_500)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_are_made_on_the_gpu_that_decodes_them(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    gpu = torch.device("cuda", 0)
    found = load(tmp_path, Machine(gpu, 0, 0), decode="gpu")
    assert isinstance(found.train.store, EncodedStore)
    canvas, _ = found.train.batch(torch.arange(6))
    assert canvas.pixels.device == gpu
    expected = load(tmp_path).train.batch(torch.arange(6))[0].pixels
    assert (canvas.pixels.cpu().int() - expected.int()).abs().float().mean() < 5
