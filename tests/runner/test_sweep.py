"""A sweep: every setting once, ranked, gone on with after a kill, each run on a GPU of its own."""

import csv
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import IO

import pytest
import torch
from rich.console import Console
from run_outcome import outcome
from typer.testing import CliRunner, Result

from clare.cli.main import app
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import ClareError, SettingsError
from clare.presets.load import make_experiment
from clare.runner.jobs import Job, choose_gpus, num_at_a_time, num_processes_for, run_jobs, visible_gpus

StartPython = Callable[..., "subprocess.Popen[str]"]


def invoke(*arguments: str | Path) -> Result:
    """Run a command on a wide terminal."""
    return CliRunner().invoke(app, [str(word) for word in arguments], env={"COLUMNS": "200"}, catch_exceptions=False)


def test_every_setting_runs_with_every_seed(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ("--set", "method.epochs=1,3", "--set", "method.batch_size=4", "--seeds", "1,2")
    command = ("sweep", tiny_preset, "--methods", "finetune,simplecil", *grid, "--out", tmp_path)
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    settings = ("finetune-epochs=1-batch_size=4", "finetune-epochs=3-batch_size=4", "simplecil")
    folders = {f"{name}-seed={seed}" for name in settings for seed in (1, 2)}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == folders
    for epochs in (1, 3):
        for seed in (1, 2):
            preset = json.loads(
                (tmp_path / f"finetune-epochs={epochs}-batch_size=4-seed={seed}/preset.json").read_text()
            )
            assert (preset["method"]["epochs"], preset["method"]["batch_size"], preset["seed"]) == (epochs, 4, seed)
    written = json.loads((tmp_path / "sweep.json").read_text())
    assert written["seeds"] == [1, 2]
    assert written["swept"] == {"method.epochs": [1, 3]}
    assert [len(setting["runs"]) for setting in written["settings"]] == [2, 2, 2]
    finals = [setting["final_accuracy"]["mean"] for setting in written["settings"]]
    assert finals == sorted(finals, reverse=True)
    with (tmp_path / "sweep.csv").open() as file:
        assert {line["method.epochs"] for line in csv.DictReader(file)} == {"1", "3", ""}
    assert "Settings compared on the test images of tiny, in percent" in result.output
    for name in ("sweep.md", "sweep.png", "sweep.svg"):
        assert (tmp_path / name).is_file()

    def refuse(*_: object) -> None:
        raise AssertionError("a finished run was started")

    monkeypatch.setattr("clare.runner.jobs.run_experiment", refuse)
    assert invoke(*command).exit_code == 0
    assert invoke(*command, "--jobs", "2").exit_code == 0
    assert json.loads((tmp_path / "sweep.json").read_text()) == written


def test_a_failing_setting_does_not_stop_the_others(tiny_preset: Path, tmp_path: Path) -> None:
    wild = [word for text in ("weight_decay=1", "batch_size=2", "epochs=8") for word in ("--set", f"method.{text}")]
    rates = ("--set", "method.learning_rate=100,0.01")
    result = invoke("sweep", tiny_preset, "--method", "finetune", *rates, *wild, "--seeds", "1", "--out", tmp_path)
    assert result.exit_code == 1
    label = "finetune-learning_rate=100-weight_decay=1-batch_size=2-epochs=8-seed=1"
    sentences = [line for line in result.output.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1
    assert sentences[0].startswith(f"error: {label} failed: the loss of task 1 became ")
    rows = [line.split() for line in result.output.splitlines()]
    assert ["100", "0", "of", "1", "failed", "-", "-"] in rows
    written = json.loads((tmp_path / "sweep.json").read_text())
    assert [failure["run"] for failure in written["failures"]] == [label]
    assert [len(setting["runs"]) for setting in written["settings"]] == [1, 0]
    assert f"- {label} failed: " in (tmp_path / "sweep.md").read_text()


def test_a_refused_combination_is_reported_beside_the_others(tiny_preset: Path, tmp_path: Path) -> None:
    grid = ("--methods", "linear,simplecil", "--set", "method.head.kind=prototype,aligned")
    result = invoke("sweep", tiny_preset, *grid, "--out", tmp_path)
    assert result.exit_code == 1
    assert "error: simplecil-head.kind=aligned failed: the setting 'method.head.kind' got 'aligned'" in result.output
    assert len(json.loads((tmp_path / "sweep.json").read_text())["settings"]) == 4


def test_all_may_fail(tiny_preset: Path, tmp_path: Path) -> None:
    grid = ("--set", "transforms.image_size=20,21", "--method", "simplecil")
    result = invoke("sweep", tiny_preset, *grid, "--out", tmp_path)
    assert result.exit_code == 1
    assert result.output.count("error: ") == 2
    assert json.loads((tmp_path / "sweep.json").read_text())["environment"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "a sweep needs settings"),
        (["--skip-bad-images"], "a sweep needs settings"),
        (["--set", "method.epoks=1,2"], r"no setting 'method\.epoks'"),
        (["--set", "method.epochs=1,1"], "is listed twice"),
        (["--set", "method.epochs=1,2", "--seeds", "3,3"], "--seeds names 3 twice"),
        (["--set", "method.epochs=1,2", "--methods", " , "], "--methods is empty"),
        (["--set", "method.epochs=1,2", "--method", "clare", "--methods", "linear"], "--method and --methods were"),
        (["--set", "method.epochs=1,2", "--ray", "local", "--jobs", "2"], "--ray and --jobs were both given"),
        (["--set", "method.epochs=1,2", "--ray", "local", "--per-gpu", "2"], "--ray and --per-gpu were both given"),
        (["--set", "method.epochs=1,2", "--backbone", "nowhere"], "there is no backbone 'nowhere'"),
    ],
)
def test_wrong_words_are_named(tiny_preset: Path, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        invoke("sweep", tiny_preset, *arguments, "--out", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(tiny_preset: Path, tmp_path: Path) -> None:
    other = tmp_path / "simplecil-stream.increment=2-seed=1993"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    with pytest.raises(ClareError, match="is not empty and holds no run"):
        invoke("sweep", tiny_preset, "--method", "simplecil", "--set", "stream.increment=3,2", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


def test_gpus_are_named_as_the_user_has_named_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5a,-1,4")
    assert visible_gpus() == ["3", "GPU-5a"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert visible_gpus() == []


def test_the_idlest_gpus_come_next() -> None:
    assert choose_gpus(["0", "1"], 1, []) == ("0",)
    assert choose_gpus(["0", "1"], 1, ["0"]) == ("1",)
    assert choose_gpus(["0", "1"], 1, ["0", "1"]) == ("0",)
    assert choose_gpus(["0", "1"], 1, ["0", "1", "0"]) == ("1",)
    assert choose_gpus(["a", "b", "c", "d"], 2, ["a", "c"]) == ("b", "d")
    assert choose_gpus(["0"], 2, []) == ()
    assert choose_gpus([], 1, []) == ()
    assert choose_gpus(["0", "1"], 1, ["0", "1", "1"], {"0": 1}) == ("1",)
    assert choose_gpus(["0", "1"], 1, ["0", "1"], {"0": 1, "1": 1}) == ()


def test_there_is_a_run_for_each_gpu(tiny_preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)

    def number(device: str, num_devices: int, num_gpus: int) -> int:
        monkeypatch.setattr("clare.runner.jobs.visible_gpus", lambda: ["0"] * num_gpus)
        words = [f"engine.device={device}", f"engine.num_devices={num_devices}"]
        return num_processes_for([make_experiment(str(tiny_preset), "simplecil", words)])

    assert [number("auto", 1, num_gpus) for num_gpus in (0, 1, 4)] == [1, 1, 4]
    assert number("auto", 2, 5) == 2
    assert number("auto", 8, 4) == 1
    assert number("cpu", 1, 4) == 1
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert number("auto", 1, 4) == 1


def test_runs_are_counted_for_all_or_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clare.runner.jobs.visible_gpus", lambda: ["5", "7"])
    assert [num_at_a_time(*given) for given in ((3, None), (None, None), (1, 4), (None, 1))] == [3, 1, 8, 2]
    with pytest.raises(SettingsError, match="--jobs 2 and --per-gpu 3 were both given"):
        num_at_a_time(2, 3)
    monkeypatch.setattr("clare.runner.jobs.visible_gpus", list)
    with pytest.raises(SettingsError, match="--per-gpu needs a GPU"):
        num_at_a_time(1, 2)


class Crowd:
    """Stands in for processes: one that finds itself beside more than fit on its GPU runs out of memory."""

    def __init__(self, num_fitting: int) -> None:
        self.num_fitting = num_fitting
        self.alive: list[FakeProcess] = []
        self.started: list[tuple[str, str, int]] = []

    def start(self, command: list[str], stdout: IO[bytes], env: dict[str, str], **_: object) -> "FakeProcess":
        """Start a process, and note its folder, its GPU and how many there are now."""
        self.alive.append(FakeProcess(self, Path(stdout.name), env["CUDA_VISIBLE_DEVICES"]))
        self.started.append((Path(stdout.name).parent.name, self.alive[-1].gpu, self.alive[-1].num_beside() + 1))
        return self.alive[-1]


class FakeProcess:
    """One of a crowd, which ends when it has been looked at a few times."""

    def __init__(self, crowd: Crowd, log: Path, gpu: str) -> None:
        self.crowd, self.log, self.gpu = crowd, log, gpu
        self.returncode: int | None = None
        self.num_looks = 0

    def num_beside(self) -> int:
        """Return how many others are on the same GPU."""
        return sum(other.gpu == self.gpu for other in self.crowd.alive) - 1

    def poll(self) -> int | None:
        """Tell how it ended, if it has."""
        self.num_looks += 1
        is_full = self.num_beside() >= self.crowd.num_fitting
        if is_full:
            self.log.write_bytes(self.log.read_bytes() + b"torch.OutOfMemoryError: CUDA out of memory.\n")
        if is_full or self.num_looks == 5:
            self.returncode = int(is_full)
            self.crowd.alive.remove(self)
        return self.returncode


@pytest.mark.parametrize(("num_fitting", "most"), [(4, 3), (2, 2), (1, 1), (0, 1)])
def test_a_run_that_finds_no_memory_waits_for_others_to_end(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_fitting: int, most: int
) -> None:
    crowd = Crowd(num_fitting)
    monkeypatch.setattr("clare.runner.jobs.subprocess.Popen", crowd.start)
    monkeypatch.setattr("clare.runner.jobs.SECONDS_BETWEEN_LOOKS", 0)
    monkeypatch.setattr("clare.runner.jobs.visible_gpus", lambda: ["5", "7"])
    experiment = make_experiment(str(tiny_preset), "simplecil", ["engine.device=auto"])
    jobs = [Job(f"run {n}", "preset", experiment, tmp_path / f"run {n}") for n in range(9)]
    reasons = run_jobs(Console(file=StringIO()), jobs, num_at_a_time(None, 3))
    assert {gpu for _, gpu, _ in crowd.started} == {"5", "7"}
    if num_fitting:
        assert not reasons
        # Once it is known how many have room, no more are started.
        assert max(number for _, _, number in crowd.started[-3:]) <= most
    else:
        # A run that fails for want of memory when it is alone has failed.
        assert set(reasons) == {job.label for job in jobs}
    ended = [name for name, _, _ in crowd.started]
    assert set(ended) == {job.label for job in jobs}
    assert (len(ended) > len(jobs)) == (num_fitting < 3)


TELLING = """
import os
from pathlib import Path

from clare.methods.simplecil import SimpleCil


class Telling(SimpleCil):
    name = "telling"
    summary = "tells which GPU it was given"

    def learn(self, task):
        name = f"{os.getpid()}-{os.environ.get('CUDA_VISIBLE_DEVICES')}"
        (Path(__file__).parent / "told" / name).touch()
        yield from super().learn(task)
"""


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the method that tells; a method's name can be taken only once."""
    path = tmp_path_factory.mktemp("methods") / "telling.py"
    path.write_text(TELLING)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("device", "told"), [("auto", ["5", "7"]), ("cpu", ["None", "None"])])
def test_each_process_has_a_gpu_of_its_own(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, telling: Path, device: str, told: list[str]
) -> None:
    places = telling.parent / "told"
    places.mkdir()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("clare.runner.jobs.visible_gpus", lambda: ["5", "7"])
    grid = ("--method", f"{telling}:Telling", "--set", f"engine.device={device}", "--seeds", "1,2")
    jobs = ("--jobs", "2") if device == "cpu" else ()
    result = invoke("sweep", tiny_preset, *grid, *jobs, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert sorted(path.name.partition("-")[2] for path in places.iterdir()) == told
    shutil.rmtree(places)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_killed_sweep_goes_on(tiny_preset: Path, tmp_path: Path, start_python: StartPython, jobs: str) -> None:
    out = tmp_path / "out"
    grid = ("--set", "method.sparsity=0.9,0.95", "--set", "method.epochs=12", "--seeds", "1,2")
    words = ("sweep", tiny_preset, "--method", "clare", *grid, "--jobs", jobs, "--out", out)
    process = start_python("-m", "clare", *words)
    while not list(out.glob("clare-sparsity=0.9-*-seed=1/checkpoint/task-*-epoch-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "sweep.json").exists()
    again = start_python("-m", "clare", *words)
    _, messages = again.communicate()
    assert again.returncode == 0, messages
    for sparsity in (0.9, 0.95):
        for seed in (1, 2):
            settings = [f"method.sparsity={sparsity}", "method.epochs=12"]
            straight = tmp_path / "straight" / f"clare-sparsity={sparsity}-epochs=12-seed={seed}"
            run_experiment(make_experiment(str(tiny_preset), "clare", settings, seed), straight, Silence())
            found = outcome(out / straight.name)
            assert {**found, "names": [name for name in found["names"] if name != "log.txt"]} == outcome(straight)
    assert [len(each["runs"]) for each in json.loads((out / "sweep.json").read_text())["settings"]] == [2, 2]
