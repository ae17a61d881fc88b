"""Pictures as users have them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clare.data.examples import as_list, read_examples, read_image
from clare.errors import DataError


def grey(value: int, size: tuple[int, int] = (4, 6)) -> np.ndarray:
    return np.full(size, value, dtype=np.uint8)


def test_reads_every_kind_of_image_alike(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    path = tmp_path / "picture.png"
    Image.fromarray(array).save(path)
    for image in (array, Image.fromarray(array), path, str(path), path.read_bytes()):
        np.testing.assert_array_equal(read_image(image, 1), array[None])
    assert read_image(array, 3).shape == (3, 4, 6)


def test_turns_pil_images_upright(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned.png"
    Image.fromarray(array).save(path, exif=exif)
    np.testing.assert_array_equal(read_image(Image.open(path), 1)[0], np.rot90(array, -1))


def test_refuses_arrays_that_are_no_image() -> None:
    with pytest.raises(DataError, match="float64"):
        read_image(np.zeros((4, 4)), 1)
    with pytest.raises(DataError, match=r"\(2, 3, 4, 5\)"):
        read_image(np.zeros((2, 3, 4, 5), dtype=np.uint8), 1)


def test_reads_a_folder_of_class_folders(tmp_path: Path) -> None:
    for name, value in (("b", 7), ("a", 5)):
        (tmp_path / name).mkdir()
        Image.fromarray(grey(value)).save(tmp_path / name / "1.png")
        (tmp_path / name / ".hidden.png").write_bytes(b"not an image")
        (tmp_path / name / "notes.txt").write_text("ignored")
    examples = read_examples(tmp_path, 1)
    assert list(examples) == ["a", "b"]
    assert [int(images[0].mean()) for images in examples.values()] == [5, 7]
    assert read_examples(str(tmp_path), 1).keys() == examples.keys()


def test_names_the_folder_that_is_missing_or_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        read_examples(tmp_path / "nowhere", 1)
    with pytest.raises(DataError, match="no class folders"):
        read_examples(tmp_path, 1)
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="cat"):
        read_examples(tmp_path, 1)


class Labelled(list):  # type: ignore[type-arg]
    """A data set in torchvision's manner."""

    classes = ("cat", "dog")


def test_reads_torchvision_style_data_sets() -> None:
    examples = read_examples(Labelled([(grey(1), 1), (grey(2), 0), (grey(3), 1)]), 1)
    assert {name: [int(image.mean()) for image in images] for name, images in examples.items()} == {
        "cat": [2],
        "dog": [1, 3],
    }
    with pytest.raises(DataError, match="a label is 2"):
        read_examples(Labelled([(grey(1), 2)]), 1)
    with pytest.raises(DataError, match="a list cannot be learnt"):
        read_examples([(grey(1), 0)], 1)


def test_one_image_or_several() -> None:
    assert len(as_list(grey(1))) == 1
    assert len(as_list("a.png")) == 1
    assert len(as_list([grey(1), grey(2)])) == 2
    assert len(as_list(np.zeros((5, 4, 4, 3), dtype=np.uint8))) == 5
