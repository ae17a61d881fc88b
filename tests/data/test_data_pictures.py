"""One picture as users have it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clare.data.pictures import read_image
from clare.errors import DataError

GREY = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10


def test_reads_every_kind_of_image_alike(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    Image.fromarray(GREY).save(path)
    kinds = [GREY, GREY[..., None], Image.fromarray(GREY), path, str(path), path.read_bytes()]
    kinds += [torch.from_numpy(GREY), torch.from_numpy(GREY)[None], torch.from_numpy(GREY) / 255, GREY / 255]
    kinds += [(GREY / 255).astype(np.float32), {"bytes": path.read_bytes(), "path": None}, {"path": str(path)}]
    for image in kinds:
        np.testing.assert_array_equal(read_image(image, 1), GREY[None])
    assert read_image(GREY, 3).shape == (3, 4, 6)


def test_channels_are_last_in_arrays_and_first_in_tensors() -> None:
    colour = np.random.RandomState(0).randint(0, 256, (4, 6, 3)).astype(np.uint8)
    expected = colour.transpose(2, 0, 1)
    np.testing.assert_array_equal(read_image(colour, 3), expected)
    np.testing.assert_array_equal(read_image(torch.from_numpy(expected.copy()), 3), expected)


def test_turns_pil_images_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned.png"
    Image.fromarray(GREY).save(path, exif=exif)
    np.testing.assert_array_equal(read_image(Image.open(path), 1)[0], np.rot90(GREY, -1))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4), np.int64), "type int64"),
        (np.zeros((2, 3, 4, 5), np.uint8), r"\(2, 3, 4, 5\)"),
        (np.zeros((4, 4, 2), np.uint8), r"\(4, 4, 2\)"),
        (np.zeros((0, 4)), r"\(0, 4\)"),
        (np.full((4, 4), 1.5), r"goes from 1.5 to 1.5; give values from 0 to 1"),
        (np.full((4, 4), np.nan), "goes from nan to nan"),
        (torch.full((3, 4, 4), -1.0), "leave normalisation to the classifier"),
        (7, "a int is no picture"),
    ],
)
def test_refuses_what_is_no_image(image: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_image(image, 1)  # type: ignore[arg-type]
