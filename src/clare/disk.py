"""How much space there is on a disk, and whether it is enough."""

import shutil
from collections.abc import Callable
from pathlib import Path

from clare.errors import ClareError


def free_space(path: Path) -> int:
    """Return the bytes that are free where a path is, or would be."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def readable_size(num_bytes: int) -> str:
    """Say a number of bytes in the unit that suits it."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"


def check_space(target: Path, num_bytes: int, free_bytes: Callable[[Path], int], kind: type[ClareError]) -> None:
    """Refuse to begin what will not fit."""
    if (free := free_bytes(target)) < num_bytes:
        raise kind(
            f"'{target}' needs {readable_size(num_bytes)} and {readable_size(free)} are free there; "
            "free some space or choose another place"
        )
