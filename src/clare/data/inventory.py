"""What of a data set is here, and how that differs from what is known of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from clare.data import cifar
from clare.data.catalogue import Facts
from clare.data.drawings import count_drawings
from clare.data.folders import list_tree
from clare.data.settings import DRAWINGS, DataSettings


@dataclass(frozen=True)
class Inventory:
    """The classes and images that were found, and where; the package's own are in no folder."""

    num_classes: int
    num_train: int
    num_test: int
    folder: Path | None

    @property
    def summary(self) -> str:
        """What was found, in words."""
        place = "the package" if self.folder is None else f"'{self.folder}'"
        return f"{self.num_classes:,} classes, {self.num_train:,} training and {self.num_test:,} test images in {place}"


class Difference(NamedTuple):
    """A number that is not as expected, and whether the expectation can be relied on."""

    text: str
    is_certain: bool


def folder_of(settings: DataSettings) -> Path:
    """Return the folder in which a data set is, or is to be."""
    root = Path(settings.root).expanduser()
    if settings.dataset == "folder":
        return root
    tree = root / settings.dataset
    if settings.dataset == "cifar100" and ((root / cifar.FOLDER).is_dir() or not _has_entries(tree)):
        return root / cifar.FOLDER
    return tree


def _has_entries(folder: Path) -> bool:
    """Tell whether a path is a folder with something in it."""
    return folder.is_dir() and any(folder.iterdir())


def layout_of(settings: DataSettings) -> str:
    """Say how the files of a data set lie in its folder."""
    folder = folder_of(settings)
    if folder.name == cifar.FOLDER:
        return f"{folder}/{{train,test,meta}}, or {folder.parent}/cifar100/{{train,test}}/<class>/<image>"
    return f"{folder}/{{train,test}}/<class>/<image>"


def take_inventory(settings: DataSettings) -> Inventory | None:
    """Count what is here; none if nothing is, and an error if what is here cannot be used."""
    if settings.dataset in DRAWINGS:
        return Inventory(*count_drawings(settings.dataset), None)
    folder = folder_of(settings)
    if not _has_entries(folder):
        return None
    if folder.name == cifar.FOLDER:
        classes, train, test = cifar.read_cifar100(folder)
        return Inventory(len(classes), len(train.labels), len(test.labels), folder)
    train_files, test_files = list_tree(folder)
    return Inventory(len(train_files.classes), len(train_files.paths), len(test_files.paths), folder)


def differences(found: Inventory, facts: Facts) -> list[Difference]:
    """Say for each number that is known and is another one here what was expected and what was found."""
    numbers = [
        ("classes", facts.num_classes, found.num_classes, True),
        ("training images", facts.num_train, found.num_train, not facts.is_quoted),
        ("test images", facts.num_test, found.num_test, not facts.is_quoted),
        ("images in all", facts.num_images, found.num_train + found.num_test, not facts.is_quoted),
    ]
    return [
        Difference(f"{expected:,} {what} were expected and {here:,} are here", is_certain)
        for what, expected, here, is_certain in numbers
        if expected is not None and expected != here
    ]
