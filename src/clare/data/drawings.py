"""The drawings that come with the package, as arrays."""

import zipfile
from importlib import resources
from typing import BinaryIO, cast

import numpy as np

from clare.data.images import Part

NUM_TRAIN_DRAWINGS = 80
NUM_PRETRAIN_CLASSES = 145
DRAWINGS_SEED = 1993


def read_drawings(dataset: str) -> tuple[tuple[str, ...], Part, Part]:
    """Return classes, training and test drawings: 145 classes to pretrain on or 200 to learn."""
    with _open() as file:
        archive = np.load(file, allow_pickle=False)
        images, names = archive["images"], archive["classes"].tolist()
    pretrain = np.random.RandomState(DRAWINGS_SEED).permutation(len(names))[:NUM_PRETRAIN_CLASSES]
    is_pretrain = np.isin(np.arange(len(names)), pretrain)
    chosen = np.flatnonzero(is_pretrain if dataset == "quickdraw-pretrain" else ~is_pretrain)
    classes = tuple(names[place] for place in chosen)
    train, test = (
        Part(part.reshape(-1, 1, *part.shape[2:]), np.repeat(np.arange(len(chosen)), part.shape[1]).tolist())
        for part in np.split(images[chosen], [NUM_TRAIN_DRAWINGS], axis=1)
    )
    return classes, train, test


def count_drawings(dataset: str) -> tuple[int, int, int]:
    """Return how many classes, training and test drawings there are, without unpacking any."""
    with _open() as file, zipfile.ZipFile(file) as archive, archive.open("images.npy") as images:
        np.lib.format.read_magic(images)
        (num_all, num_drawings, *_), _, _ = np.lib.format.read_array_header_1_0(images)
    num_classes = NUM_PRETRAIN_CLASSES if dataset == "quickdraw-pretrain" else num_all - NUM_PRETRAIN_CLASSES
    return num_classes, num_classes * NUM_TRAIN_DRAWINGS, num_classes * (num_drawings - NUM_TRAIN_DRAWINGS)


def _open() -> BinaryIO:
    """Open the archive of all drawings."""
    return cast(BinaryIO, resources.files("clare.data").joinpath("embedded/quickdraw.npz").open("rb"))
