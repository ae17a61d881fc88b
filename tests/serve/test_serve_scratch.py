"""Folders of uploaded pictures: who removes them, and when."""

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
from fastapi.testclient import TestClient

from clare.serve.scratch import scratch_folder, sweep

HOLD = """
import sys, tempfile, time
from clare.serve.scratch import scratch_folder
tempfile.tempdir = sys.argv[1]
with scratch_folder() as folder:
    (folder / "picture").touch()
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for temporary folders that no other test sees."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_there_for_a_while(parent: Path) -> None:
    with scratch_folder() as folder:
        (folder / "picture").touch()
        assert folder.parent == parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(parent.iterdir())


def test_what_a_killed_server_left_is_swept_and_what_a_living_one_has_is_not(
    parent: Path, start_python: Callable[..., "Popen[str]"]
) -> None:
    holders = [start_python("-c", HOLD, parent) for _ in range(2)]
    folders = []
    for holder in holders:
        assert holder.stdout is not None
        folders.append(Path(holder.stdout.readline().strip()))
    os.kill(holders[0].pid, signal.SIGKILL)
    holders[0].wait()
    assert (folders[0] / "picture").exists()
    with scratch_folder() as own:
        assert set(parent.iterdir()) == {folders[1], own}
    assert (folders[1] / "picture").exists()


def test_links_and_files_of_that_name_are_left_alone(parent: Path) -> None:
    (parent / "pictures").mkdir()
    (parent / "pictures" / "mine").touch()
    (parent / "clare-serve-link").symlink_to(parent / "pictures")
    (parent / "clare-serve-file").touch()
    (parent / "clare-serve-old").mkdir()
    sweep(parent)
    assert {path.name for path in parent.iterdir()} == {"pictures", "clare-serve-link", "clare-serve-file"}
    assert (parent / "pictures" / "mine").exists()


def test_a_service_sweeps_at_its_start_and_its_end(parent: Path, client: Callable[..., TestClient]) -> None:
    (parent / "clare-serve-old").mkdir()
    (parent / "clare-serve-old" / "picture").touch()
    server = client()
    (own,) = parent.glob("clare-serve-*")
    assert own.name != "clare-serve-old"
    server.__exit__(*sys.exc_info())
    assert not list(parent.glob("clare-serve-*"))
