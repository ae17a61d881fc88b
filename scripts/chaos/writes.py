"""Every write of a process under a folder, counted; at one of them the process dies, as if the machine had stopped."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

CHANGES = {"os.rename": 2, "os.remove": 1, "os.truncate": 1, "os.mkdir": 1, "os.rmdir": 1, "os.link": 2}
"""Events of the interpreter that change a folder, and how many paths they name first."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Writes:
    """Counts opening for writing, syncing, renaming and removing; dies at the chosen one."""

    def __init__(self, folder: Path, die_at: int, torn: float) -> None:
        """Take the folder, the write at which to die, and how much of what was not synced is lost then."""
        self.folder, self.die_at, self.torn = str(folder.resolve()), die_at, torn
        self.count = 0
        self.is_over = False
        self._synced: dict[tuple[int, int], int] = {}
        """How many bytes of a file a stopped machine would still have."""

    def watch(self) -> None:
        """Begin to count in this process."""
        sys.addaudithook(self._hear)
        really_sync = os.fsync

        def sync(descriptor: Any) -> None:
            self._step(descriptor)
            really_sync(descriptor)
            status = os.fstat(descriptor)
            self._synced[status.st_dev, status.st_ino] = status.st_size
            self._step()

        os.fsync = sync

    def _hear(self, event: str, values: tuple[Any, ...]) -> None:
        """Count what changes the folder."""
        if self.is_over:
            return
        if event == "open" and isinstance(values[2], int) and values[2] & WRITING and self._is_ours(values[0]):
            self._note_size(values[0], values[2])
            self._step()
        elif event in CHANGES and any(map(self._is_ours, values[: CHANGES[event]])):
            self._step()

    def _is_ours(self, path: Any) -> bool:
        """Tell whether a path is in the folder."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder)

    def _note_size(self, path: Any, flags: int) -> None:
        """Remember what is on the disk of a file that more is written to."""
        try:
            status = os.stat(path)
        except OSError:
            return
        kept = 0 if flags & os.O_TRUNC else status.st_size
        self._synced.setdefault((status.st_dev, status.st_ino), kept)

    def _step(self, descriptor: int | None = None) -> None:
        """Count a write, and die at the chosen one; of bytes that are not synced a part is lost."""
        self.count += 1
        if self.count != self.die_at:
            return
        if descriptor is not None:
            status = os.fstat(descriptor)
            synced = min(self._synced.get((status.st_dev, status.st_ino), 0), status.st_size)
            self.is_over = True
            if os.path.isfile(f"/proc/self/fd/{descriptor}"):
                os.truncate(f"/proc/self/fd/{descriptor}", synced + int(self.torn * (status.st_size - synced)))
        os.kill(os.getpid(), signal.SIGKILL)
