"""A run that was cut off anywhere goes on and ends exactly as one that was not."""

import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_outcome import Stop, outcome

from clare.engine.context import Silence
from clare.engine.folder import RunFolder
from clare.engine.run import run_experiment
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment

StartPython = Callable[..., "subprocess.Popen[str]"]
Cut = Callable[[pytest.MonkeyPatch, Callable[[], None]], None]

# Every kind of step: the probe, the training, the sweep for the statistics, the alignment of the rows.
ALIGNED = ["method.head.kind=aligned", "stream.num_classes=4"]


@pytest.fixture
def experiment(tiny_preset: Path) -> Experiment:
    """Return an experiment with every kind of step."""
    return make_experiment(str(tiny_preset), "clare", ALIGNED)


def before_commits(monkeypatch: pytest.MonkeyPatch, count: Callable[[], None]) -> None:
    """Count whenever the run is about to commit a position."""
    original = RunFolder.commit

    def commit(self: RunFolder, **changes: Any) -> None:
        count()
        original(self, **changes)

    monkeypatch.setattr(RunFolder, "commit", commit)


def after_commits(monkeypatch: pytest.MonkeyPatch, count: Callable[[], None]) -> None:
    """Count whenever the run has committed a position."""
    original = RunFolder.commit

    def commit(self: RunFolder, **changes: Any) -> None:
        original(self, **changes)
        count()

    monkeypatch.setattr(RunFolder, "commit", commit)


def before_syncs(monkeypatch: pytest.MonkeyPatch, count: Callable[[], None]) -> None:
    """Count whenever something is written but not yet known to be on the disk, or not yet renamed."""
    original = os.fsync

    def sync(descriptor: int) -> None:
        count()
        original(descriptor)

    monkeypatch.setattr("os.fsync", sync)


def cut_off(cut: Cut, number: int, experiment: Experiment, folder: Path) -> bool:
    """Stop a run at the n-th place where it can be cut, and tell whether it came so far."""
    calls = itertools.count(1)

    def count() -> None:
        if next(calls) == number:
            raise Stop

    with pytest.MonkeyPatch.context() as monkeypatch:
        cut(monkeypatch, count)
        try:
            run_experiment(experiment, folder, Silence())
        except Stop:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("cut", [before_commits, after_commits, before_syncs])
def test_a_run_goes_on_after_a_stop_at_any_boundary(experiment: Experiment, tmp_path: Path, cut: Cut) -> None:
    run_experiment(experiment, tmp_path / "straight", Silence())
    expected = outcome(tmp_path / "straight")
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        if not cut_off(cut, number, experiment, folder):
            break
        run_experiment(experiment, folder, Silence())
        assert outcome(folder) == expected, number
    # Two tasks of four steps, three of which save an epoch, then the end of the task; and the run's start and end.
    assert number - 1 >= 2 * (4 + 3 + 1) + 2


def test_a_run_goes_on_after_stops_at_every_boundary(experiment: Experiment, tmp_path: Path) -> None:
    run_experiment(experiment, tmp_path / "straight", Silence())
    for _ in range(100):
        if not cut_off(after_commits, 1, experiment, tmp_path / "stopped"):
            break
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


def position(folder: Path) -> tuple[int, int, int]:
    """Return task, finished steps and finished epochs of the next step, as the checkpoint has them."""
    path = folder / "checkpoint" / "position.json"
    if not path.exists():
        return (0, 0, -1)
    saved = json.loads(path.read_text())
    return saved["task"], len(saved["steps"]), saved["epoch"]["epoch"] if saved["epoch"] else 0


def kill_when(process: "subprocess.Popen[str]", folder: Path, moment: tuple[int, int, int], delay: float) -> None:
    """Kill the process some time after the moment is committed and the process has gone on by itself."""
    start = position(folder)
    while position(folder) == start or position(folder) < moment:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_a_killed_process_goes_on(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    # Small batches make epochs long enough to be killed within.
    overrides = [*ALIGNED, "stream.train_per_class=40", "method.batch_size=2", "method.epochs=3"]
    run_experiment(make_experiment(str(tiny_preset), "clare", overrides), tmp_path / "straight", Silence())
    folder = tmp_path / "killed"
    options = [word for override in overrides for word in ("--set", override)]
    command = ("-m", "clare", "train", tiny_preset, "--method", "clare", *options, "--out", folder)
    # In the probe, in the training, in the alignment, and somewhere in the second task.
    moments = [(0, 0, 1), (0, 1, 2), (0, 3, 1), (1, 0, 0)]
    delays = [0, 0, 0, random.Random(0).uniform(0, 0.1)]
    for moment, delay in zip(moments, delays, strict=True):
        kill_when(start_python(*command), folder, moment, delay)
        assert position(folder) < (2, 0, 0)
    process = start_python(*command)
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    assert outcome(folder) == outcome(tmp_path / "straight")
