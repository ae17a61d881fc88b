"""What X may be: pictures one by one, arrays, folders, and data sets of torch and of Hugging Face."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from clare.classifier.labels import as_labels
from clare.classifier.sources import find_source, holds_many
from clare.data.folders import image_paths, subfolders
from clare.data.pictures import ImageLike, Stored
from clare.errors import DataError

CHANNELS = (1, 3, 4)
"""An array or tensor of three dimensions is one picture where the dimension of channels has one of these sizes."""

Pair = tuple[Hashable, ImageLike]


def labelled(given: Any, labels: Any = None) -> tuple[list[Hashable] | None, Iterable[Pair]]:
    """Return classes, as far as they are known beforehand, and all pictures with their classes.

    Without labels, `given` is pictures by class, or a data set of pairs.
    """
    if labels is not None:
        return _with_labels(given, as_labels(labels))
    if isinstance(given, Mapping):
        as_labels(list(given))
        return list(given), ((label, image) for label, images in given.items() for image in images)
    if _is_table(given):
        return _rows_with_labels(given)
    if is_dataset(given):
        names = _class_names(given)
        return None, ((_label(names, label), image) for image, label in _items(given))
    raise DataError(
        f"a {type(given).__name__} does not say what its pictures show; give labels as well, or a folder of class "
        "folders, a dict of pictures by class, or a data set of pictures and labels"
    )


def pictures(given: Any) -> Iterator[ImageLike]:
    """Yield the pictures of whatever holds one or several; classes are left out."""
    if isinstance(given, str | Path) and Path(given).is_dir():
        folder = Path(given)
        names = subfolders(folder)
        yield from (path for name in names or [""] for path in image_paths(folder / name))
    elif isinstance(given, str | Path) and holds_many(given):
        parts = find_source(given).parts.values()
        yield from (image for part in parts for images in part.values() for image in images)
    elif isinstance(given, str | Path | bytes | Stored | Image.Image) or _is_one_array(given):
        yield given
    elif _is_table(given):
        column = _image_column(given)
        yield from (row[column] for row in given)
    elif is_dataset(given):
        yield from (item[0] if isinstance(item, tuple) else item for item in _items(given))
    elif isinstance(given, Iterable):
        yield from given
    else:
        raise DataError(f"a {type(given).__name__} holds no pictures; give paths, images, an array or a folder")


def is_dataset(given: Any) -> bool:
    """Tell whether something is a data set of torch, or in torchvision's manner."""
    from torch.utils.data import Dataset

    return isinstance(given, Dataset) or hasattr(given, "classes")


def _with_labels(given: Any, labels: Any) -> tuple[list[Hashable], Iterable[Pair]]:
    """Return the pictures of `given`, which go along its first dimension where it is an array, beside their labels."""
    if isinstance(given, np.ndarray | Tensor) and given.ndim < 3 and not _holds_objects(given):
        raise DataError(
            f"X of shape {tuple(given.shape)} holds no pictures, which would be of shape (number, height, width) or "
            "(number, height, width, channels), a tensor's channels first; Reshape your data"
        )
    images = list(given) if isinstance(given, np.ndarray | Tensor) else list(pictures(given))
    if len(images) != len(labels):
        raise DataError(f"X has {len(images)} pictures and y {len(labels)} labels; give one label for each picture")
    return list(np.unique(labels)), zip(labels.tolist(), images, strict=True)


def _is_one_array(given: Any) -> bool:
    """Tell whether an array or tensor is a single picture."""
    if not isinstance(given, np.ndarray | Tensor) or _holds_objects(given):
        return False
    channels = given.shape[0 if isinstance(given, Tensor) else -1] if given.ndim == 3 else 0
    return given.ndim == 2 or channels in CHANNELS


def _holds_objects(given: Any) -> bool:
    """Tell whether an array holds paths or pictures as its elements."""
    return isinstance(given, np.ndarray) and given.dtype.kind in "OUS"


def _items(dataset: Any) -> Iterator[Any]:
    """Yield what a data set holds, which may count its items and not know how to end."""
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        yield from (dataset[place] for place in range(len(dataset)))
    else:
        yield from dataset


def _class_names(dataset: Any) -> list[str] | None:
    """Return the names that a data set has for its labels, also one that is a part of another."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return None if names is None else [str(name) for name in names]


def _label(names: list[str] | None, label: Any) -> Hashable:
    """Return the class of a label: its name where there are names, else the label itself."""
    label = label.item() if isinstance(label, Tensor | np.generic) else label
    if names is None:
        found: Hashable = label
        return found
    if not 0 <= int(label) < len(names):
        raise DataError(f"a label is {int(label)}, but the data set names {len(names)} classes; correct the labels")
    return names[int(label)]


def _is_table(given: Any) -> bool:
    """Tell whether something is a data set of Hugging Face: rows, and features that say what is in their columns."""
    return isinstance(getattr(given, "features", None), Mapping)


def _rows_with_labels(table: Any) -> tuple[None, Iterable[Pair]]:
    """Return the pictures and classes of a table."""
    column, features = _image_column(table), table.features
    found = [name for name, feature in features.items() if hasattr(feature, "names")]
    found += [name for name in ("label", "labels") if name in features and name not in found]
    if not found:
        raise DataError(
            f"the data set has the columns {', '.join(features)}, and none is a ClassLabel or is called 'label'; "
            "rename the one with the classes"
        )
    names = getattr(features[found[0]], "names", None)
    return None, ((_label(names, row[found[0]]), row[column]) for row in table)


def _image_column(table: Any) -> str:
    """Return the name of the column with the pictures."""
    found = [name for name, feature in table.features.items() if type(feature).__name__ == "Image"]
    if not found:
        raise DataError(
            f"the data set has the columns {', '.join(table.features)}, and none holds images; cast the one with "
            "the pictures to Image"
        )
    return str(found[0])
