"""What X may be, each kind against the same pictures and classes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_worlds import drawings, write_pictures
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset
from torchvision.datasets import ImageFolder

from clare.classifier.inputs import pictures
from clare.classifier.labels import as_labels, kind_of, labels_of, names_of
from clare.classifier.pictures import Reader
from clare.data.pictures import ImageLike
from clare.errors import DataError

NAMES = ["cat", "dog"]
PICTURES = drawings(*NAMES, number=3)
ARRAY = np.stack([image for images in PICTURES.values() for image in images])
LABELS = [name for name, images in PICTURES.items() for _ in images]
NUMBERS = [NAMES.index(name) for name in LABELS]


class Counted(Dataset[tuple[Any, int]]):
    """A data set that counts its items and does not know how to end."""

    def __len__(self) -> int:
        return len(ARRAY)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return Image.fromarray(ARRAY[place % len(ARRAY)]), NUMBERS[place % len(ARRAY)]


class Flowing(IterableDataset[tuple[Any, str]]):
    """A data set that only flows."""

    def __iter__(self) -> Iterator[tuple[Any, str]]:
        return zip(ARRAY, LABELS, strict=True)


class Feature:
    """What a Hugging Face data set says of a column."""

    def __init__(self, names: list[str] | None = None) -> None:
        if names is not None:
            self.names = names


class Table:
    """What this package needs of a Hugging Face data set: features, columns, and rows as dicts."""

    def __init__(self, image: Callable[[Any], Any], label: str, names: list[str] | None) -> None:
        kind = type("Image", (Feature,), {})
        self.features = {"picture": kind(), label: Feature(names)}
        self.column_names = list(self.features)
        labels = LABELS if names is None else NUMBERS
        self.rows = [{"picture": image(pixels), label: label_} for pixels, label_ in zip(ARRAY, labels, strict=True)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def png(pixels: Any) -> dict[str, Any]:
    """Return an image that was not decoded."""
    from io import BytesIO

    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": "a.png"}


def read(X: Any, y: Any = None) -> dict[str, list[bytes]]:
    """Return the pictures of each class as a model reads them."""
    return {name: [image.tobytes() for image in images] for name, images in Reader(1, 28, 0).by_class(X, y).items()}


EXPECTED = {name: [image.tobytes() for image in images] for name, images in PICTURES.items()}
NAMED: dict[str, Any] = {
    "dict": PICTURES,
    "iterable data set": Flowing(),
    "hugging face": Table(Image.fromarray, "fine", NAMES),
    "hugging face, encoded": Table(png, "fine", NAMES),
    "hugging face, text": Table(Image.fromarray, "label", None),
}
LABELLED: dict[str, Any] = {
    "list": list(ARRAY),
    "array": ARRAY,
    "array with channels": ARRAY[..., None],
    "floats": ARRAY / 255,
    "tensor": torch.from_numpy(ARRAY),
    "tensor with channels": torch.from_numpy(ARRAY)[:, None] / 255,
    "pil": [Image.fromarray(image) for image in ARRAY],
    "objects": np.array([*map(Image.fromarray, ARRAY), None], dtype=object)[:-1],
}


@pytest.mark.parametrize("kind", NAMED)
def test_what_names_its_classes_is_read_alike(kind: str) -> None:
    assert read(NAMED[kind]) == EXPECTED
    if kind != "dict":
        assert sorted(np.asarray(image).tobytes() for image in map(Reader(1, 28, 0).image, pictures(NAMED[kind]))) == (
            sorted(image for images in EXPECTED.values() for image in images)
        )


@pytest.mark.parametrize("kind", LABELLED)
@pytest.mark.parametrize("labels", [LABELS, NUMBERS, np.array(NUMBERS, np.int16), torch.tensor(NUMBERS)])
def test_pictures_beside_labels_are_read_alike(kind: str, labels: Any) -> None:
    found = read(LABELLED[kind], labels)
    assert list(found.values()) == list(EXPECTED.values())
    assert list(found) == (NAMES if labels is LABELS else ["0", "1"])
    assert len(list(pictures(LABELLED[kind]))) == len(ARRAY)


def test_folders_and_torchvision_are_read_alike(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures", *NAMES, number=3)
    dataset = ImageFolder(str(folder))
    assert read(folder) == read(str(folder)) == read(dataset) == EXPECTED
    assert read(Subset(dataset, [0, 1, 2])) == {"cat": EXPECTED["cat"]}
    assert len(list(pictures(folder))) == len(list(pictures(dataset))) == 6
    paths = sorted(folder.rglob("*.png"))
    assert read(paths, LABELS) == read([str(path) for path in paths], LABELS) == EXPECTED
    assert len(list(pictures(folder / "cat"))) == 3


def test_labels_of_a_data_set_without_names_are_classes() -> None:
    tensors = TensorDataset(torch.from_numpy(ARRAY), torch.tensor(NUMBERS))
    for dataset in (Counted(), tensors):
        assert list(read(dataset).values()) == list(EXPECTED.values())
        assert Reader(1, 28, 0).to_teach(dataset).kind == "int64"


def test_one_picture_or_several() -> None:
    colour = np.zeros((4, 6, 3), np.uint8)
    ones: list[ImageLike] = ["a.png", Path("a.png"), b"bytes", Image.fromarray(ARRAY[0]), ARRAY[0], colour]
    ones += [torch.zeros(3, 4, 6), torch.zeros(1, 4, 6), torch.zeros(4, 6), np.zeros((4, 6, 4), np.uint8)]
    for one in ones:
        assert len(list(pictures(one))) == 1
    for several in ([ARRAY[0], ARRAY[1]], ARRAY[:2], torch.zeros(2, 4, 6), torch.zeros(2, 3, 4, 6), ("a.png", "b.png")):
        assert len(list(pictures(several))) == 2
    assert list(pictures([])) == []


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (ARRAY, LABELS[:-1], "X has 6 pictures and y 5 labels; give one label for each picture"),
        (np.zeros((6, 4)), LABELS, r"X of shape \(6, 4\) holds no pictures"),
        (ARRAY, [[0, 1]] * 6, r"labels of shape \(6, 2\)"),
        (ARRAY, [None] * 6, "type object"),
        (ARRAY, np.linspace(0, 1, 6), "that are no whole numbers"),
        (ARRAY, [0, 1, np.nan, 0, 1, 1], "that are no whole numbers"),
        ([], [], "no classes to read"),
        (ARRAY, None, "a ndarray does not say what its pictures show"),
        (list(ARRAY), None, "a list does not say what its pictures show"),
        (Table(Image.fromarray, "kind", None), None, "columns picture, kind, and none is a ClassLabel"),
    ],
)
def test_what_cannot_be_learnt_from_is_named(X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(X, y)


def test_a_table_without_images_is_named() -> None:
    table = Table(Image.fromarray, "label", NAMES)
    table.features = {"text": Feature(), "label": Feature(NAMES)}  # type: ignore[dict-item]
    with pytest.raises(DataError, match="columns text, label, and none holds images"):
        read(table)


def test_a_label_that_has_no_name_is_named() -> None:
    with pytest.raises(DataError, match="a label is 1, but the data set names 1 classes"):
        read(Table(Image.fromarray, "fine", ["cat"]))


@pytest.mark.parametrize(
    "labels",
    [["b", "a"], [3, -1], np.array([3, 1], np.int16), np.array([True, False]), np.array([2.0, 0.0]), torch.tensor([5])],
)
def test_labels_come_back_as_they_were_given(labels: Any) -> None:
    given = as_labels(labels)
    back = labels_of(names_of(given), kind_of(given))
    assert back.dtype == given.dtype
    np.testing.assert_array_equal(back, given)
