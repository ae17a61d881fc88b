"""What counts as a class folder and as an image in it."""

from pathlib import Path

from clare.data.images import IMAGE_SUFFIXES
from clare.errors import DataError


def subfolders(folder: Path) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones."""
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def image_paths(folder: Path) -> list[Path]:
    """Return the image files of a class in the order of their names; a class without any is refused."""
    paths = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    )
    if not paths:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        raise DataError(f"the class folder '{folder}' has no images ({suffixes}); add some or remove the folder")
    return paths
