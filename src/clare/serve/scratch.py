"""Folders for uploaded pictures that no server leaves behind, however it ended."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clare.locks import take

PREFIX = "clare-serve-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a folder that is removed at the end; those of servers that were killed are removed at the start."""
    sweep(Path(tempfile.gettempdir()))
    folder, lock = _make()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep(parent: Path) -> None:
    """Remove our folders that no living server holds."""
    for folder in parent.glob(f"{PREFIX}*"):
        # One that is gone meanwhile, is a link, or belongs to somebody else is left alone.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid() and take(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _make() -> tuple[Path, int]:
    """Return a new folder and the descriptor that holds it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        # Another server may have swept it before it was held.
        if take(lock) and folder.exists():
            return folder, lock
        os.close(lock)
