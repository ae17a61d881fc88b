"""Data sets by name: the drawings that come with the package, CIFAR-100, and folders of images."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clare.data import cifar
from clare.data.drawings import read_drawings
from clare.data.folders import list_tree
from clare.data.images import Part, Pixels, shrink_image
from clare.data.inventory import folder_of
from clare.data.placement import Machine, choose_placement, place_images, this_machine
from clare.data.settings import DATASETS, DRAWINGS, DataSettings
from clare.data.store import ImageStore, LabelledImages
from clare.data.trees import TreeReader
from clare.errors import DataError

__all__ = ["DATASETS", "DataSettings", "Dataset", "load_dataset"]


@dataclass(frozen=True)
class Dataset:
    """Training and test images whose labels are positions in the alphabetical class names."""

    name: str
    classes: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages
    num_skipped: int = 0


def load_dataset(
    settings: DataSettings, machine: Machine | None = None, notice: Callable[[str], None] = lambda text: None
) -> Dataset:
    """Read a data set to where the settings ask for it; without a machine that is for computing on the CPU."""
    machine = machine or this_machine(torch.device("cpu"))
    if settings.dataset in DRAWINGS:
        return _whole(settings, read_drawings(settings.dataset), machine, notice)
    folder = folder_of(settings)
    if settings.dataset == "cifar100" and folder.name == cifar.FOLDER:
        if not folder.is_dir():
            raise DataError(
                f"CIFAR-100 is not under '{folder.parent}'; expected {cifar.FOLDER}/ with train, test and meta, which "
                "`clare data PRESET --fetch` fetches, or cifar100/{train,test}/<class>/*"
            )
        return _whole(settings, cifar.read_cifar100(folder), machine, notice)
    if settings.dataset != "folder" and not folder.is_dir():
        raise DataError(
            f"there is no folder '{folder}', expected {folder}/{{train,test}}/<class>/<image>; `clare data PRESET` "
            "says where it comes from, and --set data.root=FOLDER where it is"
        )
    parts = list_tree(folder)
    (train, num_train_skipped), (test, num_test_skipped) = TreeReader(settings, machine, notice).read(parts)
    return Dataset(settings.dataset, parts[0].classes, train, test, num_train_skipped + num_test_skipped)


def _whole(
    settings: DataSettings, read: tuple[tuple[str, ...], Part, Part], machine: Machine, notice: Callable[[str], None]
) -> Dataset:
    """Bring images that were read as a whole to the form and the place that the settings ask for."""
    classes, *read_parts = read
    parts = [_labelled_array(*part, settings) for part in read_parts]
    placement = choose_placement(settings.store, sum(images.store.num_bytes for images in parts), machine)
    if settings.store in ("mapped", "encoded"):
        notice(f"`data.store` is {settings.store}, but {settings.dataset} is read as a whole, so it stays in memory")
    train, test = (place_images(images, placement, machine.device) for images in parts)
    return Dataset(settings.dataset, classes, train, test)


def _labelled_array(images: Pixels, labels: list[int], settings: DataSettings) -> LabelledImages:
    """Bring images of one size to the channels and the size that the settings ask for."""
    images = _with_channels(images, settings.channels)
    if settings.store_size and settings.store_size < min(images.shape[2:]):
        images = np.stack([shrink_image(image, settings.store_size) for image in images])
    store = ImageStore.from_array(images)
    return LabelledImages(store, torch.arange(len(store)), torch.tensor(labels, dtype=torch.int64))


def _with_channels(images: Pixels, channels: int) -> Pixels:
    """Repeat grey as RGB, or weigh RGB to grey as Pillow does."""
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return np.repeat(images, 3, axis=1)
    weighted = images.astype(np.uint32) * np.array([19595, 38470, 7471], dtype=np.uint32)[:, None, None]
    grey: Pixels = ((weighted.sum(axis=1, keepdims=True, dtype=np.uint32) + 0x8000) >> 16).astype(np.uint8)
    return grey
