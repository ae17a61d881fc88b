"""One process at a time: file locks, which the system takes back from a process however it ends."""

import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LOCK = ".lock"
"""The lock file of a folder."""


@contextmanager
def holding(path: Path, when_held: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file; `when_held` is told who else does, and raises something unless that one is waited for."""
    file = _taken(path, when_held)
    try:
        yield
    finally:
        # Removed while it is still held, so that it never stands there without an owner; closing gives it back.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        file.close()


def take(file: IO[bytes] | int, wait: bool = False) -> bool:
    """Lock an open file or descriptor for this process and those that inherit it, or tell that another one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems have no locks; there one works without, as one would not work at all with them.
        if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
            raise
    return True


def _taken(path: Path, when_held: Callable[[str], None]) -> IO[bytes]:
    """Return the lock file at this path, locked and with a note of who has it."""
    while True:
        file = path.open("a+b")
        try:
            if not take(file):
                when_held(_holder(file))
                take(file, wait=True)
            # Whoever had it before has removed it: then the lock is the file that is there now.
            if _is_at(file, path):
                _sign(file)
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Tell whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sign(file: IO[bytes]) -> None:
    """Note in a lock file who holds it; on a full disk it is held all the same."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    with suppress(OSError):
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}).encode())
        file.flush()


def _holder(file: IO[bytes]) -> str:
    """Return who holds a lock that is not free, as far as the note in it can be read."""
    try:
        file.seek(0)
        note = json.loads(file.read())
        return f"another process ({int(note['pid'])} on {note['host']}, since {note['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
