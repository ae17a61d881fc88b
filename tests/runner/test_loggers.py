"""Scalars for TensorBoard and Weights & Biases: every point once, with the record's values, also after a crash."""

import json
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from run_outcome import Stop, StopAtBatch, events, outcome
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from clare.cli.main import app
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import RunError, SettingsError
from clare.metrics.accuracy import forgetting, matrix_from_rows
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.runner.loggers import Scalars, check_address, check_loggers, open_loggers, together

BLOCK = 32_768
Points = dict[str, list[tuple[int, float]]]


def aligned(preset: Path) -> Experiment:
    """Return CLARE with a probe, a training and an alignment on two tasks."""
    settings = ["method.head.kind=aligned", "stream.num_classes=4", "method.epochs=2"]
    return make_experiment(str(preset), "clare", settings)


@pytest.fixture
def experiment(tiny_preset: Path) -> Experiment:
    """Return the experiment of most tests."""
    return aligned(tiny_preset)


class Memory:
    """A sink that remembers everything."""

    def __init__(self) -> None:
        self.points: list[tuple[str, int, dict[str, float]]] = []
        self.settings: dict[str, Any] = {}
        self.num_closed = 0

    def open(self, folder: Path, name: str, settings: Any) -> Any:
        self.settings = dict(settings)
        return self

    def write(self, axis: str, step: int, values: Any) -> None:
        self.points.append((axis, step, dict(values)))

    def close(self, failed: bool) -> None:
        self.num_closed += 1


def train(experiment: Experiment, folder: Path, sink: Any, *others: Silence) -> None:
    """Run an experiment with a sink and other listeners."""
    with Scalars(sink.open, "memory", experiment, folder) as scalars:
        run_experiment(experiment, folder, together([scalars, *others]))


def told(folder: Path) -> list[tuple[str, int, dict[str, float]]]:
    """What a sink should have been told, from the record."""
    points: list[tuple[str, int, dict[str, float]]] = []
    rows, num_epochs = [], 0
    for event in events(folder):
        if event["event"] == "phase":
            for loss in event["loss"]:
                num_epochs += 1
                points.append(("epoch", num_epochs, {f"loss/{event['phase']}": pytest.approx(loss)}))
        elif event["event"] == "task":
            rows.append(event["accuracy"]["per_task"])
            values = {
                f"task/{key}": event["accuracy"][key] for key in ("seen", "new", "first", "task_given", "task_right")
            }
            values["task/forgetting"] = forgetting(matrix_from_rows(rows))
            values |= {"task/capacity_used": event["capacity"]["used"], "task/stored": event["parameters"]["stored"]}
            points.append(("task", event["task"] + 1, values))
    return points


def without_times(points: list[tuple[str, int, dict[str, float]]]) -> list[tuple[str, int, dict[str, float]]]:
    """Leave out what differs from run to run, and the rates, which the record has not."""
    dropped = ("task/learn_seconds", "task/evaluate_seconds", "task/peak_memory_bytes")
    return [
        (axis, step, {key: value for key, value in values.items() if key not in dropped and "rate/" not in key})
        for axis, step, values in points
    ]


def test_a_sink_is_told_every_epoch_and_task_of_the_record(experiment: Experiment, tmp_path: Path) -> None:
    sink = Memory()
    train(experiment, tmp_path / "run", sink)
    assert without_times(sink.points) == told(tmp_path / "run")
    assert {axis for axis, _, _ in sink.points} == {"epoch", "task"}
    assert any("rate/probe" in values for _, _, values in sink.points)
    tasks = [values for axis, _, values in sink.points if axis == "task"]
    assert all(values["task/peak_memory_bytes"] > 1e6 and values["task/learn_seconds"] > 0 for values in tasks)
    assert sink.settings["method.head.kind"] == "aligned"
    assert sink.num_closed == 1


def test_listening_changes_nothing(experiment: Experiment, tmp_path: Path) -> None:
    train(experiment, tmp_path / "heard", Memory())
    run_experiment(experiment, tmp_path / "alone", Silence())
    heard, alone = (outcome(tmp_path / name) for name in ("heard", "alone"))
    heard["names"].remove("memory/logged.json")
    assert heard == alone


@pytest.fixture(scope="module")
def whole(tiny_preset: Path, tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """Return what a sink remembers of a run that nothing interrupts."""
    sink = Memory()
    train(aligned(tiny_preset), tmp_path_factory.mktemp("whole") / "run", sink)
    return sink


@pytest.mark.parametrize("num_batches", [1, 3, 6, 10, 15, 22])
def test_after_an_interruption_every_point_comes_once(
    experiment: Experiment, whole: Memory, tmp_path: Path, num_batches: int
) -> None:
    cut = Memory()
    with pytest.raises(Stop):
        train(experiment, tmp_path / "cut", cut, StopAtBatch(num_batches))
    train(experiment, tmp_path / "cut", cut)
    assert without_times(cut.points) == without_times(whole.points)
    assert cut.num_closed == 2
    train(experiment, tmp_path / "cut", cut)
    assert len(cut.points) == len(whole.points)


class StopAtTask(Silence):
    """A listener that stops the run when a task is committed, before anyone after it hears of it."""

    def measured(self, task: Any) -> None:
        raise Stop


def test_a_task_that_was_committed_and_not_told_is_told_later(experiment: Experiment, tmp_path: Path) -> None:
    sink = Memory()
    with pytest.raises(Stop), Scalars(sink.open, "memory", experiment, tmp_path / "run") as scalars:
        run_experiment(experiment, tmp_path / "run", together([StopAtTask(), scalars]))
    assert [step for axis, step, _ in sink.points if axis == "task"] == []
    train(experiment, tmp_path / "run", sink)
    assert without_times(sink.points) == told(tmp_path / "run")


def read_tensorboard(folder: Path) -> Points:
    """The scalars of a run's event files, as TensorBoard reads them."""
    points: Points = {}
    for path in sorted(each for each in (folder / "tensorboard").iterdir() if each.is_dir()):
        reader = EventAccumulator(str(path))
        reader.Reload()
        for tag in reader.Tags()["scalars"]:
            points[tag] = [(each.step, each.value) for each in reader.Scalars(tag)]
    return points


def test_tensorboard_reads_the_curves_of_an_interrupted_run(experiment: Experiment, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for num_batches in (8, 8, 10_000):
        with ExitStack() as stack:
            stack.enter_context(pytest.raises(Stop) if num_batches < 10_000 else ExitStack())
            listeners = open_loggers(["tensorboard"], experiment, folder, stack)
            run_experiment(experiment, folder, together([*listeners, StopAtBatch(num_batches)]))
    points = read_tensorboard(folder)
    for axis, step, values in told(folder):
        for tag, value in values.items():
            assert [each for at, each in points[tag] if at == step] == [pytest.approx(value)], (axis, step, tag)
    assert [step for step, _ in points["task/seen"]] == [1, 2]
    assert sorted(step for tag, each in points.items() if tag.startswith("loss/") for step, _ in each) == list(
        range(1, 1 + sum(axis == "epoch" for axis, _, _ in told(folder)))
    )


def read_log(data: bytes) -> Iterator[bytes]:
    """The records of an offline run, a log as LevelDB keeps it: in blocks, each piece with its length and kind."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        room = BLOCK - place % BLOCK
        if room < 7:
            place += room
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        # A piece is a whole record (1), or the first, a middle or the last one (2, 3, 4) of several.
        if kind in (1, 4):
            yield whole
            whole = b""


@pytest.fixture
def no_wandb_left() -> Iterator[None]:
    """Leave no process of wandb's behind."""
    yield
    import wandb

    wandb.teardown()


@pytest.mark.usefixtures("no_wandb_left")
def test_wandb_keeps_a_run_offline(experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    check_loggers(["wandb"])
    with ExitStack() as stack:
        run_experiment(
            experiment, tmp_path / "run", together(open_loggers(["wandb"], experiment, tmp_path / "run", stack))
        )
    # The file is another process's, which has written the last of it when it ends.
    wandb.teardown()
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    history: list[dict[str, Any]] = []
    for data in read_log(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = record.history.item
            history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    expected = told(tmp_path / "run")
    assert [row["epoch"] for row in history if "epoch" in row] == [
        step for axis, step, _ in expected if axis == "epoch"
    ]
    assert [row["task"] for row in history if "task" in row] == [1, 2]
    seen = [row["task/seen"] for row in history if "task/seen" in row]
    assert seen == [values["task/seen"] for axis, _, values in expected if axis == "task"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_named_with_its_extra(
    name: str, tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingsError, match=rf"--{name} needs the package {name}, .* 'clare\[{name}\]'"):
        check_loggers([name])
    result = CliRunner().invoke(app, ["train", str(tiny_preset), f"--{name}", "--out", str(tmp_path / "run")])
    assert isinstance(result.exception, SettingsError)
    assert not (tmp_path / "run").exists()


def test_a_server_out_of_reach_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clare.runner.loggers.getproxies", dict)
    monkeypatch.setenv("WANDB_MODE", "online")
    # Nobody listens at the port for discarded bytes.
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(RunError, match=r"cannot reach http://127.0.0.1:9 .* WANDB_MODE=offline"):
        check_address()
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_address()


def test_the_command_takes_a_logger(tiny_preset: Path, tmp_path: Path) -> None:
    words = ["train", str(tiny_preset), "--method", "simplecil", "--tensorboard", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    seen = [event["accuracy"]["seen"] for event in events(tmp_path / "run") if event["event"] == "task"]
    assert read_tensorboard(tmp_path / "run")["task/seen"] == [
        (place, pytest.approx(value)) for place, value in enumerate(seen, start=1)
    ]
