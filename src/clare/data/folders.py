"""What counts as a class folder and as an image in it, and the files of a tree, root/{train,test}/<class>/*."""

from dataclasses import dataclass
from pathlib import Path

from clare.data.images import IMAGE_SUFFIXES
from clare.errors import DataError
from clare.plain import is_plain


def subfolders(folder: Path) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not is_plain(name):
            raise DataError(f"the folder {name!a} in '{folder}' has no name that can be shown; rename it")
    return names


def image_paths(folder: Path) -> list[Path]:
    """Return the image files of a class in the order of their names; a class without any is refused."""
    paths = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    )
    if not paths:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        raise DataError(f"the class folder '{folder}' has no images ({suffixes}); add some or remove the folder")
    return paths


@dataclass(frozen=True)
class Files:
    """The image files of one part of a tree, class by class."""

    folder: Path
    classes: tuple[str, ...]
    paths: list[Path]
    labels: list[int]


def list_tree(root: Path) -> tuple[Files, Files]:
    """Find the training and the test images of a tree, in the order of their names."""
    parts = [root / "train", root / "test"]
    for folder in parts:
        if not folder.is_dir():
            raise DataError(f"there is no folder '{folder}'; expected {root}/{{train,test}}/<class>/<image>")
    classes, test_classes = (subfolders(folder) for folder in parts)
    if not classes:
        raise DataError(f"there is no class folder in '{parts[0]}'; expected {root}/{{train,test}}/<class>/<image>")
    if classes != test_classes:
        raise DataError(_difference(root, set(classes), set(test_classes)))
    train, test = (_list_part(folder, tuple(classes)) for folder in parts)
    return train, test


def _list_part(folder: Path, classes: tuple[str, ...]) -> Files:
    """Find the images of every class."""
    found = [image_paths(folder / name) for name in classes]
    labels = [label for label, paths in enumerate(found) for _ in paths]
    return Files(folder, classes, [path for paths in found for path in paths], labels)


def _difference(root: Path, train: set[str], test: set[str]) -> str:
    """Say which classes only one of the two parts has."""
    only = [
        f"only {part} has {', '.join(repr(name) for name in sorted(names)[:5])}{', ...' if len(names) > 5 else ''}"
        for part, names in (("train", train - test), ("test", test - train))
        if names
    ]
    return f"train and test under '{root}' have different classes: {' and '.join(only)}; give both the same folders"
