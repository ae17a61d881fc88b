"""One process at a time makes a run in a folder, and one that was killed is in nobody's way."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_outcome import outcome

from clare.engine.context import Silence
from clare.engine.folder import working_alone
from clare.engine.run import run_experiment
from clare.errors import RunError
from clare.presets.load import make_experiment
from clare.report.record import read_run

StartPython = Callable[..., "subprocess.Popen[str]"]


def command(preset: Path, folder: Path, epochs: int) -> tuple[str | Path, ...]:
    """Return the words of a training."""
    return ("-m", "clare", "train", preset, "--method", "clare", "--set", f"method.epochs={epochs}", "--out", folder)


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until a file is there."""
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_a_run_in_a_folder_that_is_taken_is_refused(tiny_preset: Path, tmp_path: Path) -> None:
    experiment = make_experiment(str(tiny_preset), "simplecil")
    with working_alone(tmp_path / "run"):
        with pytest.raises(RunError, match=r"another process \(\d+ on .* UTC\) is at the run in .*run; wait until"):
            run_experiment(experiment, tmp_path / "run", Silence())
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    assert not (tmp_path / "run").exists()
    run_experiment(experiment, tmp_path / "run", Silence())
    assert not (tmp_path / "run" / ".lock").exists()


def test_folders_that_stay_empty_go_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with working_alone(tmp_path / "runs" / "a" / "b"):
        pass
    assert not list((tmp_path / "runs").iterdir())
    with working_alone(tmp_path / "runs" / "a" / "b"):
        (tmp_path / "runs" / "a" / "notes.txt").touch()
    assert [path.name for path in (tmp_path / "runs" / "a").iterdir()] == ["notes.txt"]


def test_a_place_that_cannot_hold_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file is a file and cannot hold a run; choose another --out"):
        working_alone(tmp_path / "file").__enter__()
    with pytest.raises(RunError, match=r"could not write .*file/run: Not a directory; choose another --out"):
        working_alone(tmp_path / "file" / "run").__enter__()


def test_of_two_processes_one_makes_the_run(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    words = command(tiny_preset, tmp_path / "run", 20)
    first = start_python(*words)
    wait_for(tmp_path / "run" / "checkpoint" / "position.json", first)
    # It stays in the middle of its run however long the second takes to start.
    first.send_signal(signal.SIGSTOP)
    second = start_python(*words)
    _, said = second.communicate()
    assert second.returncode == 2
    assert f"error: another process ({first.pid} on " in said
    assert said.strip().endswith(
        f" UTC) is at the run in {tmp_path / 'run'}; wait until it is done, or choose another --out"
    )
    assert len(said.strip().splitlines()) == 1
    first.send_signal(signal.SIGCONT)
    _, messages = first.communicate()
    assert first.returncode == 0, messages
    run_experiment(make_experiment(str(tiny_preset), "clare", ["method.epochs=20"]), tmp_path / "straight", Silence())
    assert read_run(tmp_path / "run").finished
    assert outcome(tmp_path / "run") == outcome(tmp_path / "straight")


def test_a_killed_process_does_not_block(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    first = start_python(*command(tiny_preset, tmp_path / "run", 20))
    wait_for(tmp_path / "run" / "checkpoint" / "position.json", first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (tmp_path / "run" / ".lock").exists()
    run_experiment(make_experiment(str(tiny_preset), "clare", ["method.epochs=20"]), tmp_path / "run", Silence())
    assert read_run(tmp_path / "run").finished
    assert not (tmp_path / "run" / ".lock").exists()
