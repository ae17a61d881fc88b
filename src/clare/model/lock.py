"""One writer at a time: a lock on the model folder itself, which the system takes back from a killed process."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clare.errors import ModelError


@contextmanager
def writing(
    folder: Path, wait: bool, notice: Callable[[str], None] = lambda text: None, makes_folder: bool = False
) -> Iterator[None]:
    """Hold the folder's lock; a second writer waits for the first, or is refused."""
    try:
        if makes_folder:
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ModelError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise ModelError(
                    f"another process is teaching {folder}; try again when it is done, or wait for it (no --no-wait)"
                ) from None
            notice(f"another process is teaching {folder}; waiting until it is done")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Closing gives the lock back.
        os.close(descriptor)
