"""A sweep through Ray: a run is a task, which Ray repeats after a death and the user can interrupt."""

import contextlib
import fcntl
import importlib.util
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from run_outcome import outcome

from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import SettingsError
from clare.methods import METHODS
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment, Job
from clare.runner import ray_jobs
from clare.runner.ray_jobs import check_address, load_ray, resources_for, run_ray_jobs, run_task

StartPython = Callable[..., "subprocess.Popen[str]"]
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray is not installed")


@pytest.fixture
def experiment(tiny_preset: Path) -> Experiment:
    """Return a run of half a second."""
    return make_experiment(str(tiny_preset), "simplecil", (), 3)


def console() -> Console:
    """Return a console that nobody reads."""
    return Console(file=StringIO())


def test_a_task_is_a_run(experiment: Experiment, tmp_path: Path) -> None:
    here, marker, folder = Path.cwd(), tmp_path / "marker", tmp_path / "run"
    marker.touch()
    assert run_task(experiment.model_dump_json(), str(folder), str(tmp_path), str(marker)) is None
    assert Path.cwd() == here
    run_experiment(experiment, tmp_path / "straight", Silence())
    found = outcome(folder)
    assert {**found, "names": [name for name in found["names"] if name != "log.txt"]} == outcome(tmp_path / "straight")
    # Ray may start a task again when the machine is lost after its end.
    assert run_task(experiment.model_dump_json(), str(folder), str(tmp_path), str(marker)) is None
    assert outcome(folder) == found


def test_a_machine_that_does_not_see_the_folders_says_so(experiment: Experiment, tmp_path: Path) -> None:
    text, folder, marker = experiment.model_dump_json(), tmp_path / "out" / "run", tmp_path / "out" / ".marker"
    sentence = run_task(text, str(folder), str(tmp_path), str(marker))
    assert f"does not see the folder {tmp_path / 'out'}; give an --out that all machines share" in str(sentence)
    assert list(tmp_path.iterdir()) == []
    marker.parent.mkdir()
    marker.touch()
    sentence = run_task(text, str(folder), str(tmp_path / "home"), str(marker))
    assert f"has no folder {tmp_path / 'home'}; call the command in a folder" in str(sentence)
    assert not folder.exists()


def test_a_task_that_fails_returns_its_sentence(tiny_preset: Path, tmp_path: Path) -> None:
    wrong = make_experiment(str(tiny_preset), "simplecil", ["transforms.image_size=20"], 3)
    (tmp_path / "marker").touch()
    reason = run_task(wrong.model_dump_json(), str(tmp_path / "run"), str(tmp_path), str(tmp_path / "marker"))
    assert str(reason).startswith("`transforms.image_size` is 20")


def test_a_run_asks_for_a_gpu_where_there_are_some(tiny_preset: Path) -> None:
    def wish(*words: str, has_gpus: bool) -> dict[str, int]:
        return resources_for(make_experiment(str(tiny_preset), "simplecil", words), has_gpus)

    assert wish("engine.device=auto", has_gpus=True) == {"num_cpus": 1, "num_gpus": 1}
    assert wish("engine.device=auto", has_gpus=False) == {"num_cpus": 1, "num_gpus": 0}
    assert wish("engine.device=cpu", "engine.threads=4", has_gpus=True) == {"num_cpus": 4, "num_gpus": 0}


def test_a_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        SettingsError, match=r"--ray needs the package ray, which is missing; run pip install 'clare\[ray"
    ):
        load_ray()


def test_ray_is_not_needed_when_all_is_done(
    experiment: Experiment, tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    job = Job("run", str(tiny_preset), experiment, tmp_path / "run")
    with pytest.raises(SettingsError, match="--ray needs the package ray"):
        run_ray_jobs(console(), [job], "local", tmp_path)
    run_experiment(experiment, job.folder, Silence())
    assert run_ray_jobs(console(), [job], "local", tmp_path) == {}


def test_several_gpus_for_one_run_are_refused(tiny_preset: Path, tmp_path: Path) -> None:
    experiment = make_experiment(str(tiny_preset), "simplecil", ["engine.num_devices=2"])
    with pytest.raises(SettingsError, match=r"`engine\.num_devices` is 2, but a run through Ray has one GPU"):
        run_ray_jobs(console(), [Job("run", str(tiny_preset), experiment, tmp_path / "run")], "local", tmp_path)


@pytest.mark.parametrize("address", ["", "nonsense", "ray://", "host:", ":6379", "host:port", "host:70000"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(SettingsError, match="write HOST:PORT, ray://HOST:PORT, auto or local"):
        check_address(address, 1.0)


def test_an_address_where_nothing_listens_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setattr(ray_jobs, "PROBE", "raise SystemExit('probed')")
        for given in (address, f"ray://{address}"):
            with pytest.raises(SettingsError, match=f"nothing answers at '{given}'.*start Ray there"):
                check_address(given, 1.0)


def test_what_is_no_ray_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(SettingsError, match=f"no Ray answered at '{address}' within 2 seconds"):
            check_address(address, 2.0)
        monkeypatch.setattr(ray_jobs, "PROBE", "raise ConnectionError('not today')")
        with pytest.raises(SettingsError, match=r"could not join a Ray cluster at .* \(ConnectionError: not today\)"):
            check_address(address, 60.0)


DYING = """
import os
import signal
from pathlib import Path

from clare.methods.finetune import FineTune


class Dying(FineTune):
    name = "dying"
    summary = "dies once in its second task, and fails with three epochs"

    def learn(self, task):
        died = Path(__file__).parent / "died"
        if task.index == 1 and self.settings.epochs == 3:
            raise KeyError("no second task")
        if task.index == 1 and self.settings.epochs == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().learn(task)
"""


@needs_ray
@pytest.mark.slow
def test_ray_repeats_what_died_and_reports_what_failed(
    tiny_preset: Path, tmp_path: Path, start_python: StartPython
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    grid = ("--method", "dying.py:Dying", "--set", "method.epochs=1,2,3", "--seeds", "1", "--out", "out")
    # Relative paths mean the same to a task as to the user.
    process = start_python("-m", "clare", "sweep", tiny_preset, *grid, "--ray", "local", cwd=tmp_path)
    output, messages = process.communicate()
    assert process.returncode == 1, messages
    assert (tmp_path / "died").exists()
    out = tmp_path / "out"
    failure = "the method Dying raises KeyError: 'no second task' (dying.py line 16); correct it"
    assert f"error: dying-epochs=3-seed=1 failed: {failure}" in messages
    assert "dying-epochs=2-seed=1: done" in output
    assert "Traceback" in (out / "dying-epochs=3-seed=1" / "log.txt").read_text()
    written = json.loads((out / "sweep.json").read_text())
    assert written["failures"] == [{"run": "dying-epochs=3-seed=1", "reason": failure}]
    assert sorted(len(setting["runs"]) for setting in written["settings"]) == [0, 1, 1]
    assert not list(out.glob(".sweep-*"))
    with contextlib.chdir(tmp_path):
        METHODS.named("dying.py:Dying")
        for epochs in (1, 2):
            words = [f"method.epochs={epochs}"]
            straight = tmp_path / "straight" / f"dying-epochs={epochs}-seed=1"
            run_experiment(make_experiment(str(tiny_preset), "dying.py:Dying", words, 1), straight, Silence())
            found = outcome(out / straight.name)
            assert {**found, "names": [name for name in found["names"] if name != "log.txt"]} == outcome(straight)


@needs_ray
@pytest.mark.slow
def test_an_interruption_cancels_the_tasks(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    # A shell may start us with this signal ignored, and a child would inherit that.
    code = (
        "import signal, clare.cli.main; signal.signal(signal.SIGINT, signal.default_int_handler); clare.cli.main.main()"
    )
    grid = ("--method", "finetune", "--set", "method.epochs=9000,10000", "--seeds", "1", "--out", tmp_path)
    process = start_python("-c", code, "sweep", tiny_preset, *grid, "--ray", "local")
    while len(list(tmp_path.glob("*/checkpoint/position.json"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate()
    assert process.returncode == 130, messages
    assert messages.strip().splitlines()[-1] == "interrupted; run the same command again to go on"
    for epochs in (9000, 10000):
        with (tmp_path / f"finetune-epochs={epochs}-seed=1" / "log.txt").open("ab") as log:
            # Ray ends a task's process a moment after it was told to; one that went on would hold its lock for good.
            fcntl.flock(log, fcntl.LOCK_EX)
    assert not list(tmp_path.glob(".sweep-*"))
