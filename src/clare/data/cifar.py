"""CIFAR-100 as it is published: three pickles, read without resolving any class but plain arrays."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clare.data.images import Part
from clare.errors import DataError

FOLDER = "cifar-100-python"


def read_cifar100(folder: Path) -> tuple[tuple[str, ...], Part, Part]:
    """Return the class names in alphabetical order, the training and the test images."""
    names = _read(folder / "meta", "fine_label_names")[0]
    classes = tuple(sorted(names))
    place = [classes.index(name) for name in names]
    return classes, _read_part(folder / "train", place), _read_part(folder / "test", place)


def _read_part(path: Path, place: list[int]) -> Part:
    """Return the images of one file as (N, 3, 32, 32) and the alphabetical positions of their classes."""
    data, labels = _read(path, "data", "fine_labels")
    images = np.asarray(data)
    if images.dtype != np.uint8 or images.shape != (len(labels), 3 * 32 * 32):
        raise _broken(path, f"its images are {images.dtype} of shape {images.shape} for {len(labels)} labels")
    if not all(isinstance(label, int) and 0 <= label < len(place) for label in labels):
        raise _broken(path, f"it has a label outside 0..{len(place) - 1}")
    return Part(images.reshape(-1, 3, 32, 32), [place[label] for label in labels])


def _read(path: Path, *keys: str) -> list[Any]:
    """Return the values of the keys of a pickled dictionary."""
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="latin1").load()
        return [content[key] for key in keys]
    except Exception as error:  # damaged pickles fail with almost every kind of exception
        raise _broken(path, str(error) or type(error).__name__) from None


def _broken(path: Path, reason: str) -> DataError:
    """Say what is wrong with a file and how to get a good one."""
    return DataError(
        f"'{path}' is not a CIFAR-100 file ({reason}); "
        f"fetch it again with torchvision.datasets.CIFAR100('{path.parent.parent}', download=True)"
    )


class _PlainUnpickler(pickle.Unpickler):
    """Builds numbers, text, lists, dictionaries and arrays; refuses every other name, whatever it is."""

    def find_class(self, module_name: str, global_name: str, /) -> Callable[..., Any]:
        """Return the stand-in of an allowed name."""
        # Asked of an array, since the module that holds the function has moved between versions of NumPy.
        rebuild_array: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy", "ndarray"): np.ndarray,
            # From its name alone: some versions of NumPy warn of the flags that come with it.
            ("numpy", "dtype"): lambda name, *_flags: np.dtype(name, copy=True),
            ("numpy.core.multiarray", "_reconstruct"): rebuild_array,
            ("numpy._core.multiarray", "_reconstruct"): rebuild_array,
            # How Python 3 writes bytes in old pickles, always as this text.
            ("_codecs", "encode"): lambda text, _encoding: text.encode("latin1"),
        }
        if (module_name, global_name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}, which is not allowed")
        return allowed[module_name, global_name]
