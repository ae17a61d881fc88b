"""The run's folder: whose it is, what counts after a crash, and what a full disk leaves."""

import errno
import itertools
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from run_outcome import Stop, StopAtTask, events, outcome

from clare.engine.context import Silence
from clare.engine.folder import RunFolder
from clare.engine.run import run_experiment
from clare.errors import DataError, RunError
from clare.methods.state import Snapshot
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.report.record import read_run

ENVIRONMENT = {"world_size": 1}
Make = Callable[..., Experiment]


@pytest.fixture
def make(tiny_preset: Path) -> Make:
    """Return make(*overrides, seed=None): the tiny experiment of the method that trains nothing."""

    def made(*overrides: str, seed: int | None = None) -> Experiment:
        return make_experiment(str(tiny_preset), "simplecil", overrides, seed)

    return made


def take_up(path: Path, preset: dict[str, Any], writes: bool = True) -> RunFolder:
    """Inspect a folder and begin or take up its run."""
    run = RunFolder(path, writes)
    run.inspect(preset)
    run.begin(preset, ENVIRONMENT)
    return run


def opened(path: Path, writes: bool = True) -> RunFolder:
    """Take up a run of a small preset."""
    return take_up(path, {"name": "small", "seed": 1, "overrides": []}, writes)


def begin(path: Path, preset: dict[str, Any]) -> None:
    """Open a run and commit its first event."""
    run = take_up(path, preset)
    run.event("start")
    run.commit()


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files under a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_that_was_begun_before_a_setting_existed_goes_on(make: Make, tmp_path: Path) -> None:
    preset = make().model_dump(mode="json")
    older = json.loads(json.dumps(preset))
    del older["method"]["features"]["blocks"], older["engine"]["compile"]
    begin(tmp_path / "run", older)
    take_up(tmp_path / "run", preset)
    other = make("method.features.blocks=2").model_dump(mode="json")
    with pytest.raises(RunError, match=r"method\.features\.blocks is 1 there and 2 here"):
        take_up(tmp_path / "run", other)


@pytest.mark.parametrize(
    ("overrides", "seed", "message"),
    [
        (["method.head.scale=21"], None, r"method\.head\.scale is 20\.0 there and 21\.0 here"),
        (["stream.increment=3"], None, r"stream\.increment is 2 there and 3 here"),
        ([], 7, r"seed is 1993 there and 7 here"),
        (["engine.num_devices=2"], None, r"engine\.num_devices is 1 there and 2 here"),
    ],
)
def test_a_run_of_another_preset_is_refused(
    make: Make, tmp_path: Path, overrides: list[str], seed: int | None, message: str
) -> None:
    preset = make().model_dump(mode="json")
    begin(tmp_path / "run", preset)
    before = contents(tmp_path)
    other = make(*overrides, seed=seed).model_dump(mode="json")
    with pytest.raises(RunError, match=rf"run holds a run of another preset: {message}; choose another --out"):
        take_up(tmp_path / "run", other)
    assert contents(tmp_path) == before
    take_up(tmp_path / "run", preset)


def test_the_same_settings_in_other_words_are_the_same_run(make: Make, tmp_path: Path) -> None:
    begin(tmp_path, make().model_dump(mode="json"))
    same = make("method.head.scale=20", "seed=1993").model_dump(mode="json")
    assert same["overrides"]
    take_up(tmp_path, same)
    take_up(tmp_path, {**same, "description": "told in other words"})


@pytest.mark.parametrize("writes", [True, False])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, writes: bool) -> None:
    (tmp_path / "photograph.jpg").write_text("not a run")
    with pytest.raises(RunError, match="is not empty and holds no run; choose another --out or empty it"):
        opened(tmp_path, writes)
    with pytest.raises(RunError, match=r"photograph\.jpg is a file and cannot hold a run; choose another --out"):
        opened(tmp_path / "photograph.jpg", writes)
    assert contents(tmp_path) == {"photograph.jpg": b"not a run"}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"could not write .*file/run.*choose another folder"):
        opened(tmp_path / "file" / "run")


def test_a_beginning_that_was_cut_off_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / ".preset.json.123.tmp").write_text("{")
    opened(tmp_path)
    whole = contents(tmp_path)
    assert sorted(whole) == ["environment.json", "preset.json", "record.jsonl"]
    (tmp_path / "environment.json").unlink()
    opened(tmp_path)
    assert contents(tmp_path) == whole


def test_a_run_that_fails_before_it_begins_leaves_no_folder(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(DataError, match="asks for 1000 classes"):
        run_experiment(make("stream.num_classes=1000"), folder, Silence())
    assert not folder.exists()
    run_experiment(make(), folder, Silence())
    assert json.loads((folder / "preset.json").read_text()) == make().model_dump(mode="json")
    assert read_run(folder).finished


def test_a_run_cut_off_before_its_first_commit_may_begin_with_other_settings(make: Make, tmp_path: Path) -> None:
    take_up(tmp_path, make("method.head.scale=21").model_dump(mode="json"))
    run_experiment(make(), tmp_path, Silence())
    assert json.loads((tmp_path / "preset.json").read_text()) == make().model_dump(mode="json")


def test_a_rank_that_does_not_write_writes_nothing(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", writes=False)
    run.event("start")
    run.commit()
    run.save_epoch(0, 1, {"x": torch.ones(2)})
    run.finish(0, {"x": torch.ones(2)})
    run.predictions(0, torch.ones(2), torch.ones(2))
    run.advance(Snapshot({}, {"x": torch.ones(2)}))
    run.rewind()
    run.commit(ended=True)
    assert not (tmp_path / "run").exists()
    assert (run.position.task, run.has_ended) == (1, True)


def test_a_finished_run_does_nothing_again(make: Make, tmp_path: Path) -> None:
    run_experiment(make(), tmp_path, Silence())
    before = contents(tmp_path)

    class Watchman(Silence):
        def step(self, name: str, num_epochs: int) -> None:
            raise AssertionError(name)

    run_experiment(make(), tmp_path, Watchman())
    assert contents(tmp_path) == before


def test_what_was_recorded_after_the_last_commit_is_forgotten(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.event("start", text="über")
    run.commit()
    run.event("phase", task=0)
    with (tmp_path / "record.jsonl").open("a") as record:
        record.write('{"event": "cut o')
    assert opened(tmp_path).position.record_bytes > 0
    assert events(tmp_path) == [{"event": "start", "text": "über"}]
    opened(tmp_path).event("phase", task=1)
    assert events(tmp_path)[1:] == [{"event": "phase", "task": 1}]


def test_a_record_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.event("start")
    run.commit()
    (tmp_path / "record.jsonl").write_text("")
    with pytest.raises(RunError, match=r"has 0 bytes where the checkpoint counts 19; restore the file"):
        opened(tmp_path)


def test_steps_and_epochs_come_back_until_the_task_is_done(tmp_path: Path) -> None:
    run = opened(tmp_path)
    assert run.finished(0) is None
    assert run.epoch(0) is None
    run.save_epoch(0, 1, {"x": torch.tensor([1.0])})
    run.save_epoch(0, 2, {"x": torch.tensor([2.0])})
    again = opened(tmp_path)
    saved = again.epoch(0)
    assert saved is not None
    assert (saved[0], saved[1]["x"].item()) == (2, 2.0)
    assert again.epoch(1) is None
    again.finish(0, {"x": torch.tensor([3.0])})
    again.finish(1, {})
    again = opened(tmp_path)
    assert again.epoch(0) is None
    assert again.finished(0) == {"x": torch.tensor([3.0])}
    assert again.finished(1) == {}
    assert again.finished(2) is None
    assert sorted(contents(tmp_path / "checkpoint")) == ["position.json", "task-0000-step-00.safetensors"]
    again.advance(Snapshot({"tasks": [["a"]]}, {"x": torch.tensor([4.0])}))
    again = opened(tmp_path)
    snapshot = again.snapshot()
    assert snapshot is not None
    assert (again.position.task, snapshot.structure, snapshot.tensors["x"].item()) == (1, {"tasks": [["a"]]}, 4.0)
    assert again.finished(0) is None
    assert sorted(contents(tmp_path / "checkpoint")) == ["finished.jsonl", "position.json", "task-0001.safetensors"]


def test_rewinding_goes_back_to_the_start_of_the_task(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.event("start")
    run.commit()
    run.advance(Snapshot({}, {"x": torch.ones(1)}))
    before = contents(tmp_path)
    run.event("phase", task=1)
    run.finish(0, {"x": torch.zeros(1)})
    run.save_epoch(1, 1, {"x": torch.zeros(1)})
    run.event("notice", task=1)
    run.rewind()
    assert contents(tmp_path) == before
    assert opened(tmp_path).finished(0) is None
    run.event("phase", task=1)
    run.finish(0, {"x": torch.zeros(1)})
    assert [event["event"] for event in events(tmp_path)] == ["start", "phase"]


@contextmanager
def full_after(monkeypatch: pytest.MonkeyPatch, num_syncs: int) -> Iterator[None]:
    """Let the disk be full from the n-th write on."""
    syncs = itertools.count(1)

    def sync(descriptor: int) -> None:
        if next(syncs) >= num_syncs:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", sync)
        yield


@contextmanager
def small_files(num_bytes: int) -> Iterator[None]:
    """Let the system refuse to make files larger than this."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_run_goes_on_once_a_full_disk_has_space_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", syncs.append)
        run_experiment(make(), tmp_path / "straight", Silence())
    expected, num_needed = outcome(tmp_path / "straight"), len(syncs)
    assert num_needed > 20
    for num_syncs in range(1, num_needed + 1, 5):
        folder = tmp_path / str(num_syncs)
        full = r"could not write .*: No space left on device; free some space"
        with full_after(monkeypatch, num_syncs), pytest.raises(RunError, match=full):
            run_experiment(make(), folder, Silence())
        assert not list(folder.rglob(".*.tmp"))
        run_experiment(make(), folder, Silence())
        assert outcome(folder) == expected, num_syncs


def test_a_file_that_the_system_cuts_short_is_not_taken_for_whole(make: Make, tmp_path: Path) -> None:
    # Wide features make the tensors the largest file.
    experiment = make("method.features.blocks=2", "method.features.patches=true")
    run_experiment(experiment, tmp_path / "straight", Silence())
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        run_experiment(experiment, folder, StopAtTask(1))
    before = contents(folder)
    largest = max(len(content) for content in before.values())
    with small_files(largest), pytest.raises(RunError, match=r"could not write .*: File too large; free some"):
        run_experiment(experiment, folder, Silence())
    after = contents(folder)
    names = ("task-0001-step-00.safetensors", "task-0001-step-01.safetensors", "task-0002.safetensors", "rows.bin")
    assert set(after) <= {*before, *(f"checkpoint/{name}" for name in names), "predictions/task-0001.safetensors"}
    assert after["checkpoint/task-0001.safetensors"] == before["checkpoint/task-0001.safetensors"]
    assert json.loads(after["checkpoint/position.json"])["task"] == 1
    run_experiment(experiment, folder, Silence())
    assert outcome(folder) == outcome(tmp_path / "straight")


def test_a_record_that_cannot_grow_stops_the_run(make: Make, tmp_path: Path) -> None:
    class FillDisk(Silence):
        """Puts the device that is always full in place of the record while the first task is evaluated."""

        def step(self, name: str, num_epochs: int) -> None:
            if name == "evaluate":
                record.rename(kept)
                record.symlink_to("/dev/full")

    folder, kept = tmp_path / "run", tmp_path / "kept.jsonl"
    record = folder / "record.jsonl"
    with pytest.raises(RunError, match=r"could not write .*run: No space left on device; free some space"):
        run_experiment(make(), folder, FillDisk())
    assert json.loads((folder / "checkpoint" / "position.json").read_text())["task"] == 0
    kept.replace(record)
    run_experiment(make(), folder, Silence())
    run_experiment(make(), tmp_path / "straight", Silence())
    assert outcome(folder) == outcome(tmp_path / "straight")
