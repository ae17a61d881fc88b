"""Locks: one holder at a time, who that is, and nothing left of one that was killed."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from clare.locks import holding, take

StartPython = Callable[..., "subprocess.Popen[str]"]

HOLDS = """
import sys, time
from pathlib import Path
from clare.locks import holding

with holding(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(600)
"""


class Refused(Exception):
    """Somebody else has the lock."""


def refuse(holder: str) -> None:
    """Give up at once."""
    raise Refused(holder)


def test_a_held_lock_is_refused_and_names_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with holding(lock, refuse):
        with (
            pytest.raises(Refused, match=rf"^another process \({os.getpid()} on .+, since 20\d\d-.* UTC\)$"),
            holding(lock, refuse),
        ):
            pass
        assert lock.exists()
    assert not lock.exists()
    with holding(lock, refuse):
        pass


def test_a_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mistake"), holding(tmp_path / ".lock", refuse):
        raise ValueError("mistake")
    with holding(tmp_path / ".lock", refuse):
        pass


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b"\xff", b'{"pid": "x", "host": 1, "since": 2}'])
def test_a_note_that_cannot_be_read_names_nobody(tmp_path: Path, note: bytes) -> None:
    (tmp_path / ".lock").write_bytes(note)
    with (tmp_path / ".lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Refused, match=r"^another process$"), holding(tmp_path / ".lock", refuse):
            pass


def test_a_killed_holder_blocks_nobody(tmp_path: Path, start_python: StartPython) -> None:
    process = start_python("-c", HOLDS, tmp_path / ".lock")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(Refused, match=rf"another process \({process.pid} on "), holding(tmp_path / ".lock", refuse):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Its note is still there, and is not believed.
    assert json.loads((tmp_path / ".lock").read_text())["pid"] == process.pid
    with holding(tmp_path / ".lock", refuse):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_those_who_wait_come_one_after_another(tmp_path: Path) -> None:
    inside, most, waited = [0], [0], []

    def work() -> None:
        for _ in range(20):
            with holding(tmp_path / ".lock", waited.append):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == ([0], [1])
    assert not list(tmp_path.iterdir())


def test_a_child_does_not_inherit_a_lock(tmp_path: Path) -> None:
    with holding(tmp_path / ".lock", refuse):
        child = subprocess.Popen(["sleep", "600"])
    try:
        with holding(tmp_path / ".lock", refuse):
            pass
    finally:
        child.kill()
        child.wait()


def test_work_goes_on_where_a_file_system_has_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: object, operation: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", fail)
    with (tmp_path / "file").open("wb") as file:
        number = errno.ENOLCK
        assert take(file)
        number = errno.EBADF
        with pytest.raises(OSError, match="no locks"):
            take(file)
