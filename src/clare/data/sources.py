"""Data sets by name: the drawings that come with the package, CIFAR-100, and folders of images."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field, field_validator

from clare.data import cifar
from clare.data.folders import image_paths, subfolders
from clare.data.images import Pixels, decode_image, shrink_image
from clare.data.store import ImageStore, LabelledImages
from clare.errors import DataError, nearest
from clare.settings import Settings

DRAWINGS = ("quickdraw", "quickdraw-pretrain")
TREES = ("cifar100", "cub", "imagenet-a", "imagenet-r", "objectnet", "omnibenchmark", "omnibenchmark1k", "vtab")
DATASETS = (*DRAWINGS, *TREES, "folder")

NUM_TRAIN_DRAWINGS = 80
NUM_PRETRAIN_CLASSES = 145
DRAWINGS_SEED = 1993


class DataSettings(Settings):
    """Which images to learn from, and how they are kept in memory."""

    dataset: str = Field(description=f"Name of the data set: {', '.join(DATASETS)}.")
    root: str = Field("data", description="Folder that holds the data sets; for 'folder' the image tree itself.")
    channels: Literal[1, 3] = Field(3, description="3 for RGB, 1 for grey.")
    store_size: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Shorter side to which larger images are resized when read; 0 keeps the original size.",
    )
    skip_bad_images: bool = Field(False, description="Leave out images that cannot be read, and count them.")

    @field_validator("dataset")
    @classmethod
    def _is_known(cls, name: str) -> str:
        """Refuse a name that is not in the list."""
        if name not in DATASETS:
            raise ValueError(f"there is no such data set{nearest(name, DATASETS)}; use one of {', '.join(DATASETS)}")
        return name


@dataclass(frozen=True)
class Dataset:
    """Training and test images whose labels are positions in the alphabetical class names."""

    name: str
    classes: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages
    num_skipped: int = 0


def load_dataset(settings: DataSettings) -> Dataset:
    """Read a data set into memory."""
    if settings.dataset in DRAWINGS:
        return _load_drawings(settings)
    root = Path(settings.root).expanduser()
    if settings.dataset == "folder":
        return _load_tree(root, settings)
    if settings.dataset == "cifar100":
        if (root / cifar.FOLDER).is_dir():
            return _load_cifar100(root / cifar.FOLDER, settings)
        if not (root / "cifar100").is_dir():
            raise DataError(
                f"CIFAR-100 is not under '{root}'; expected {cifar.FOLDER}/ with train, test and meta, which "
                f"torchvision.datasets.CIFAR100('{root}', download=True) fetches, or cifar100/{{train,test}}/<class>/*"
            )
    return _load_tree(root / settings.dataset, settings)


def _load_drawings(settings: DataSettings) -> Dataset:
    """Read the drawings that come with the package: 145 classes to pretrain on, the other 200 to learn."""
    with resources.files("clare.data").joinpath("embedded/quickdraw.npz").open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        images, names = archive["images"], archive["classes"].tolist()
    pretrain = np.random.RandomState(DRAWINGS_SEED).permutation(len(names))[:NUM_PRETRAIN_CLASSES]
    is_pretrain = np.isin(np.arange(len(names)), pretrain)
    chosen = np.flatnonzero(is_pretrain if settings.dataset == "quickdraw-pretrain" else ~is_pretrain)
    return Dataset(
        settings.dataset,
        tuple(names[place] for place in chosen),
        train=_drawings(images[chosen, :NUM_TRAIN_DRAWINGS], settings),
        test=_drawings(images[chosen, NUM_TRAIN_DRAWINGS:], settings),
    )


def _drawings(images: Pixels, settings: DataSettings) -> LabelledImages:
    """Label drawings of shape (class, drawing, height, width) by their class."""
    num_classes, num_drawings, height, width = images.shape
    labels = np.repeat(np.arange(num_classes), num_drawings).tolist()
    return _labelled_array(images.reshape(-1, 1, height, width), labels, settings)


def _load_cifar100(folder: Path, settings: DataSettings) -> Dataset:
    """Read CIFAR-100 from the files that its authors publish."""
    classes, train, test = cifar.read_cifar100(folder)
    return Dataset("cifar100", classes, train=_labelled_array(*train, settings), test=_labelled_array(*test, settings))


def _labelled_array(images: Pixels, labels: list[int], settings: DataSettings) -> LabelledImages:
    """Bring images of one size to the channels and the size that the settings ask for."""
    images = _with_channels(images, settings.channels)
    if settings.store_size and settings.store_size < min(images.shape[2:]):
        images = np.stack([shrink_image(image, settings.store_size) for image in images])
    return _labelled(ImageStore.from_array(images), labels)


def _with_channels(images: Pixels, channels: int) -> Pixels:
    """Repeat grey as RGB, or weigh RGB to grey as Pillow does."""
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return np.repeat(images, 3, axis=1)
    weighted = images.astype(np.uint32) * np.array([19595, 38470, 7471], dtype=np.uint32)[:, None, None]
    grey: Pixels = ((weighted.sum(axis=1, keepdims=True, dtype=np.uint32) + 0x8000) >> 16).astype(np.uint8)
    return grey


def _load_tree(root: Path, settings: DataSettings) -> Dataset:
    """Read an image tree, root/{train,test}/<class>/*."""
    parts = [root / "train", root / "test"]
    for folder in parts:
        if not folder.is_dir():
            raise DataError(f"there is no folder '{folder}'; expected {root}/{{train,test}}/<class>/<image>")
    classes, test_classes = (subfolders(folder) for folder in parts)
    if not classes:
        raise DataError(f"there is no class folder in '{parts[0]}'; expected {root}/{{train,test}}/<class>/<image>")
    if classes != test_classes:
        raise DataError(_difference(root, set(classes), set(test_classes)))
    (train, num_train_skipped), (test, num_test_skipped) = (_read_part(folder, classes, settings) for folder in parts)
    return Dataset(settings.dataset, tuple(classes), train, test, num_train_skipped + num_test_skipped)


def _difference(root: Path, train: set[str], test: set[str]) -> str:
    """Say which classes only one of the two parts has."""
    only = [
        f"only {part} has {', '.join(repr(name) for name in sorted(names)[:5])}{', ...' if len(names) > 5 else ''}"
        for part, names in (("train", train - test), ("test", test - train))
        if names
    ]
    return f"train and test under '{root}' have different classes: {' and '.join(only)}; give both the same folders"


def _read_part(folder: Path, classes: Sequence[str], settings: DataSettings) -> tuple[LabelledImages, int]:
    """Read the images of every class in the order of their names, and count those left out."""
    paths = [image_paths(folder / name) for name in classes]
    labels = [label for label, found in enumerate(paths) for _ in found]
    images: list[Pixels] = []
    kept: list[int] = []
    with ThreadPoolExecutor() as pool:
        decoded = pool.map(lambda path: _read_image(path, settings), [path for found in paths for path in found])
        for label, image in zip(labels, decoded, strict=True):
            if image is not None:
                images.append(image)
                kept.append(label)
    for label in sorted(set(labels) - set(kept)):
        raise DataError(f"no image in '{folder / classes[label]}' can be read; replace them or remove the class")
    return _labelled(ImageStore.from_images(images), kept), len(labels) - len(kept)


def _read_image(path: Path, settings: DataSettings) -> Pixels | None:
    """Read one image, or nothing where bad ones are to be skipped."""
    try:
        image = decode_image(path, settings.channels)
    except DataError:
        if settings.skip_bad_images:
            return None
        raise
    return shrink_image(image, settings.store_size) if settings.store_size else image


def _labelled(store: ImageStore, labels: list[int]) -> LabelledImages:
    """Label all images of a store."""
    return LabelledImages(store, torch.arange(len(store)), torch.tensor(labels, dtype=torch.int64))
