"""A matrix of methods and seeds: done once, gone on with after a kill, and whole even where runs fail."""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_outcome import outcome
from typer.testing import CliRunner, Result

from clare.cli.main import app
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import RunError, SettingsError
from clare.presets.load import make_experiment
from clare.runner.compare import parse_seeds
from clare.runner.jobs import check_processes

StartPython = Callable[..., "subprocess.Popen[str]"]


def invoke(*arguments: str | Path) -> Result:
    """Run a command on a wide terminal."""
    return CliRunner().invoke(app, [str(word) for word in arguments], env={"COLUMNS": "200"}, catch_exceptions=False)


def without_log(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out the log, which only runs in a process of their own have."""
    return {**found, "names": [name for name in found["names"] if name != "log.txt"]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--seeds got '', which holds no seed; write them as 1993,1994,1995"),
        (" , ", "--seeds got ' , ', which holds no seed"),
        ("1,two", "--seeds got 'two', which is no whole number; write them as"),
        ("1.5", "--seeds got '1.5', which is no whole number"),
        ("3,4,3", "--seeds names 3 twice; a seed counts once"),
        ("3,03", "--seeds names 03 twice"),
    ],
)
def test_wrong_seeds_are_named(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_seeds(text, None)
    assert sentence in str(caught.value)


def test_seeds_are_read_in_order() -> None:
    assert parse_seeds("5, 3,4", None) == [5, 3, 4]
    assert parse_seeds(None, 7) == [7]
    assert parse_seeds(None, None) == [None]
    with pytest.raises(SettingsError, match="--seed and --seeds were both given"):
        parse_seeds("1,2", 3)


def test_processes_are_not_started_from_within_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    check_processes(1)
    with pytest.raises(SettingsError, match="--jobs 2 starts processes of its own"):
        check_processes(2)


@pytest.mark.slow
def test_every_method_runs_with_every_seed(tiny_preset: Path, tmp_path: Path) -> None:
    command = ("compare", tiny_preset, "--methods", "linear,simplecil,clare,joint", "--seeds", "3,4", "--out", tmp_path)
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    folders = {f"{method}-{seed}" for method in ("linear", "simplecil", "clare", "joint") for seed in (3, 4)}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {*folders, "plots"}
    for folder in folders:
        assert json.loads((tmp_path / folder / "preset.json").read_text())["seed"] == int(folder[-1])
    table, given = result.output.split("With the task given, in percent")
    table = table[table.index("Comparison in percent; head: prototype") :]
    assert "joint" not in given.split("report:")[0]
    methods = ("linear", "simplecil", "clare", "joint")
    ranked = [line.split()[0] for line in table.splitlines() if line.startswith(tuple(f" {name} " for name in methods))]
    assert ranked[-1] == "joint"
    assert sorted(ranked) == sorted(methods)
    assert "joint (bound)" in table
    assert "reference" in next(line for line in table.splitlines() if line.split()[:1] == ["clare"])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary) == ["linear", "simplecil", "clare", "joint"]
    assert summary["clare"]["seeds"] == [3, 4]
    assert summary["joint"]["is_bound"]
    finals = [run["final_accuracy"] for run in summary["clare"]["runs"].values()]
    assert len(finals) == 2
    assert summary["clare"]["final_accuracy"] == pytest.approx(sum(finals) / 2, abs=1e-6)
    for method in ("linear", "simplecil", "joint"):
        difference, low, high = summary[method]["difference_to_clare"]["final_accuracy"]
        assert low <= difference <= high
        between = summary[method]["final_accuracy"] - summary["clare"]["final_accuracy"]
        assert difference == pytest.approx(between, abs=2e-6)
    markdown = (tmp_path / "comparison.md").read_text()
    assert "| **clare** | 2 |" in markdown
    assert "Numbers stored beside the backbone" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "plots" / "stored.png").is_file()
    before = {folder: outcome(tmp_path / folder) for folder in folders}
    assert invoke(*command).exit_code == 0
    assert {folder: outcome(tmp_path / folder) for folder in folders} == before


def test_heads_are_told_apart(tiny_preset: Path, tmp_path: Path) -> None:
    preset = tmp_path / "two_heads.toml"
    preset.write_text(f'extends = "{tiny_preset}"\n[methods.linear.head]\nkind = "trained"\n')
    result = invoke("compare", preset, "--methods", "simplecil,linear", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    titles = [line.strip() for line in result.output.splitlines() if "Comparison in percent" in line]
    assert titles == ["Comparison in percent; head: prototype", "Comparison in percent; head: cosine, trained"]


def test_a_finished_matrix_is_not_run_again(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("compare", tiny_preset, "--methods", "simplecil", "--seeds", "3,4", "--out", tmp_path)
    assert invoke(*command).exit_code == 0

    def refuse(*_: object) -> None:
        raise AssertionError("a finished run was started")

    monkeypatch.setattr("clare.runner.jobs.run_experiment", refuse)
    assert invoke(*command).exit_code == 0
    assert invoke(*command, "--jobs", "2").exit_code == 0


FAILING = """
from clare.methods.finetune import FineTune


class Raising(FineTune):
    name = "raising"
    summary = "raises in its second task"

    def learn(self, task):
        if task.index == 1:
            raise KeyError("no second task")
        yield from super().learn(task)
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the method that raises, as a user gives it."""
    path = tmp_path_factory.mktemp("methods") / "failing.py"
    path.write_text(FAILING)
    return f"{path}:Raising"


@pytest.fixture
def diverging(tiny_preset: Path, tmp_path: Path) -> Path:
    """Return a preset whose `finetune` diverges."""
    preset = tmp_path / "diverging.toml"
    wild = "learning_rate = 100\nweight_decay = 1\nbatch_size = 2\nepochs = 8\n"
    preset.write_text(f'extends = "{tiny_preset}"\n[methods.finetune]\n{wild}')
    return preset


def test_a_failing_run_does_not_stop_the_others(diverging: Path, tmp_path: Path, failing: str) -> None:
    methods = f"finetune,{failing},simplecil,linear"
    out = tmp_path / "out"
    result = invoke(
        "compare", diverging, "--methods", methods, "--out", out, "--set", "method.head.kind=aligned", "--seed", "1"
    )
    assert result.exit_code == 1
    sentences = [line for line in result.output.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 3
    assert sentences[0].startswith("error: simplecil failed: the setting 'method.head.kind' got 'aligned'; ")
    assert sentences[1].startswith("error: finetune failed: the loss of task 1 became ")
    reason = "the method Raising raises KeyError: 'no second task' (failing.py line 11); correct it"
    assert sentences[2] == f"error: raising failed: {reason}"
    rows = [line.split() for line in result.output.splitlines()]
    for method in ("finetune", "raising", "simplecil"):
        assert any(row[:2] == [method, "failed"] for row in rows)
    assert "Traceback" in (out / "raising" / "log.txt").read_text()
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary) == ["linear", "simplecil", "finetune", "raising"]
    assert summary["raising"] == {"failed": reason}
    for text in ((out / "comparison.md").read_text(), (out / "report.html").read_text()):
        assert "no second task" in text
    assert (out / "linear" / "model" / "model.json").is_file()


def test_what_every_method_refuses_is_said_at_once(tiny_preset: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no setting 'method\.epoks'"):
        invoke("compare", tiny_preset, "--methods", "clare,linear", "--set", "method.epoks=1", "--out", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_reported_when_all_runs_fail(tiny_preset: Path, tmp_path: Path) -> None:
    wrong = ("--set", "transforms.image_size=20")
    result = invoke("compare", tiny_preset, "--methods", "linear,simplecil", "--out", tmp_path, *wrong)
    assert result.exit_code == 1
    assert result.output.count("error: ") == 2
    assert not (tmp_path / "report.html").exists()


MEETING = """
import time
from pathlib import Path

from clare.methods.simplecil import SimpleCil

PLACE = Path(__file__).parent / "meeting"


class One(SimpleCil):
    name = "one"
    summary = "goes on when the other one has come"

    def learn(self, task):
        PLACE.mkdir(exist_ok=True)
        (PLACE / self.name).touch()
        for _ in range(2000):
            if len(list(PLACE.iterdir())) == 2:
                yield from super().learn(task)
                return
            time.sleep(0.05)
        raise RuntimeError("nobody came")


class Two(One):
    name = "two"
"""


@pytest.mark.slow
def test_two_processes_really_run_at_a_time(tiny_preset: Path, tmp_path: Path) -> None:
    (tmp_path / "meeting.py").write_text(MEETING)
    methods = ",".join(f"{tmp_path}/meeting.py:{name}" for name in ("One", "Two"))
    out = tmp_path / "out"
    result = invoke("compare", tiny_preset, "--methods", methods, "--jobs", "2", "--out", out)
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "meeting").iterdir()} == {"one", "two"}
    for name in ("one", "two"):
        assert f"{name}: started" in result.output
        assert f"{name}: done" in result.output
        assert f"{name}, in percent" in (out / name / "log.txt").read_text()


@pytest.mark.slow
def test_a_failure_in_a_process_of_its_own_is_a_sentence_too(diverging: Path, tmp_path: Path, failing: str) -> None:
    methods = f"finetune,{failing},simplecil"
    out = tmp_path / "out"
    result = invoke("compare", diverging, "--methods", methods, "--jobs", "2", "--out", out)
    assert result.exit_code == 1
    sentences = [line for line in result.output.splitlines() if line.startswith("error: ")]
    assert sentences[0].startswith("error: finetune failed: the loss of task 1 became ")
    reason = "the method Raising raises KeyError: 'no second task' (failing.py line 11); correct it"
    assert sentences[1] == f"error: raising failed: {reason}"
    assert "simplecil: done" in result.output
    assert (out / "report.html").is_file()


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_killed_comparison_goes_on(tiny_preset: Path, tmp_path: Path, start_python: StartPython, jobs: str) -> None:
    settings = ["method.epochs=12"]
    out = tmp_path / "out"
    words = ("compare", tiny_preset, "--methods", "clare,linear", "--seeds", "1,2", "--jobs", jobs, "--out", out)
    options = [word for setting in settings for word in ("--set", setting)]
    process = start_python("-m", "clare", *words, *options)
    while not list(out.glob("clare-1/checkpoint/task-*-epoch-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again = start_python("-m", "clare", *words, *options)
    output, messages = again.communicate()
    assert again.returncode == 0, messages
    assert f"report: {out / 'report.html'}" in output
    for method in ("clare", "linear"):
        for seed in (1, 2):
            straight = tmp_path / "straight" / f"{method}-{seed}"
            run_experiment(make_experiment(str(tiny_preset), method, settings, seed), straight, Silence())
            assert without_log(outcome(out / straight.name)) == outcome(straight)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_run_that_another_process_is_at_is_waited_for(
    tiny_preset: Path, tmp_path: Path, start_python: StartPython, jobs: str
) -> None:
    (tmp_path / "simplecil").mkdir()
    with (tmp_path / "simplecil" / "log.txt").open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        process = start_python(
            "-u", "-m", "clare", "compare", tiny_preset, "--methods", "simplecil", "--jobs", jobs, "--out", tmp_path
        )
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("waiting for a process that an earlier command left at it" in line for line in lines)
        assert not (tmp_path / "simplecil" / "record.jsonl").exists()
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    assert (tmp_path / "simplecil" / "model" / "model.json").is_file()


@pytest.mark.slow
def test_an_interruption_ends_the_processes_too(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    # A shell may start us with this signal ignored, and a child would inherit that.
    code = (
        "import signal, clare.cli.main; signal.signal(signal.SIGINT, signal.default_int_handler); clare.cli.main.main()"
    )
    command = ("compare", tiny_preset, "--methods", "clare,linear", "--jobs", "2", "--out", tmp_path)
    process = start_python("-c", code, *command, "--set", "method.epochs=10000", "--set", "method.head.kind=trained")
    while len(list(tmp_path.glob("*/checkpoint/position.json"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate()
    assert process.returncode == 130
    assert messages.strip() == "interrupted; run the same command again to go on"
    for name in ("clare", "linear"):
        with (tmp_path / name / "log.txt").open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_belongs_to_one_comparison(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = Path("runs/tiny"), Path("runs/tiny-2")
    command = ("compare", tiny_preset, "--methods", "linear,simplecil")
    assert invoke(*command).exit_code == 0
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    another = invoke("compare", tiny_preset, "--methods", "simplecil")
    assert another.exit_code == 0
    assert f"{first} holds another comparison; this one is in {second}" in another.output
    assert list(json.loads((second / "summary.json").read_text())) == ["simplecil"]
    assert {path: path.read_bytes() for path in before} == before
    assert {path for path in first.rglob("*") if path.is_file()} == before.keys()
    again = invoke("compare", tiny_preset, "--methods", "simplecil,linear")
    assert f"report: {first}/report.html" in again.output
    sentence = f"{first} holds another comparison, with the methods linear,simplecil and not simplecil; give another"
    with pytest.raises(RunError, match=sentence):
        invoke("compare", tiny_preset, "--methods", "simplecil", "--out", first)
    with pytest.raises(RunError, match=f"{first} belongs to a `clare compare`"):
        invoke("report", second, "--out", first)


def test_a_failed_run_stands_at_its_own_head(tiny_preset: Path, tmp_path: Path, failing: str) -> None:
    preset = tmp_path / "two_heads.toml"
    reading = "[methods.linear.features]\nblocks = 2\npatches = true\n"
    own = f'[methods."{failing}".features]\nblocks = 2\npatches = true\n'
    preset.write_text(f'extends = "{tiny_preset}"\n{reading}{own}')
    result = invoke("compare", preset, "--methods", f"simplecil,linear,{failing}", "--out", tmp_path / "out")
    assert result.exit_code == 1
    tables = result.output.split("Comparison in percent; head: ")
    (table,) = [each for each in tables[1:] if "raising" in each.partition("error:")[0]]
    assert table.startswith("prototype, 2 blocks with patches")
