"""Damage to a run's folder ends in one sentence, or changes nothing."""

import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from damage import copy_with, files_of, flips, losses
from run_outcome import Stop, StopAtBatch, events, outcome

from clare.engine.context import Silence
from clare.engine.folder import RunFolder
from clare.engine.run import run_experiment
from clare.errors import ClareError, RunError
from clare.position import FINISHED, NO_BYTES, POSITION, RECORD, ROWS, read_position
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment, completed
from clare.report.record import RunRecord, read_run
from clare.sealed import seal

RELEASED = Path(__file__).parents[1] / "releases" / "0.1.0" / "run"


@pytest.fixture(scope="module")
def experiment(tiny_preset: Path) -> Experiment:
    """Return a run of CLARE over the tiny stream."""
    return make_experiment(str(tiny_preset), "clare", ["engine.threads=1"])


@pytest.fixture(scope="module")
def runs(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run that has ended, and one stopped in its second task after some epochs."""
    folder = tmp_path_factory.mktemp("runs")
    run_experiment(experiment, folder / "finished", Silence())
    for num_batches in range(12, 60):
        with suppress(Stop):
            run_experiment(experiment, folder / "stopped", StopAtBatch(num_batches))
        position = read_position(folder / "stopped")
        if position.task == 1 and any(position.steps) and position.epoch:
            return folder
        shutil.rmtree(folder / "stopped")
    raise AssertionError("no such moment was found")


@pytest.fixture
def stopped(runs: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that was stopped."""
    return shutil.copytree(runs / "stopped", tmp_path / "stopped")


@pytest.fixture
def finished(runs: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that has ended."""
    return shutil.copytree(runs / "finished", tmp_path / "finished")


def told(folder: Path) -> tuple[Any, ...]:
    """Return all that readers learn from a run's folder, times included."""
    run: RunRecord = read_run(folder)
    predictions = [
        tensor.tolist() for tensors in (run.evaluations.predicted, run.evaluations.target) for tensor in tensors
    ]
    return run.preset, run.environment, run.start, run.phases, run.tasks, run.finished, predictions


def check_reading(folder: Path, expected: tuple[Any, ...], name: str) -> None:
    """Read a damaged run: it says the same as before, or a sentence names the file or the folder."""
    try:
        assert told(folder) == expected
    except ClareError as error:
        check_sentence(error, folder, name)


def check_sentence(error: ClareError, folder: Path, name: str) -> None:
    """Make sure that a sentence names what is damaged, says what to do, and is one line."""
    said = str(error)
    assert str(folder) in said
    assert ";" in said
    assert "\n" not in said
    assert error.exit_code == 2
    assert Path(name).suffix != ".safetensors" or Path(name).name in said or "model" in said


def check_resuming(experiment: Experiment, folder: Path, expected: dict[str, Any], name: str) -> bool:
    """Let a damaged run go on, and tell whether it ended as the undamaged one; if not, a sentence says why."""
    try:
        run_experiment(experiment, folder, Silence())
    except ClareError as error:
        check_sentence(error, folder, name)
        return False
    assert outcome(folder) == expected
    return True


def test_an_undamaged_run_goes_on_and_reads(experiment: Experiment, stopped: Path, finished: Path) -> None:
    position = read_position(stopped)
    counting = [name for name in files_of(stopped) if name not in (RECORD, POSITION, FINISHED, ROWS)]
    assert sorted(position.digests) == counting
    assert read_run(stopped).tasks[0].seen == read_run(finished).tasks[0].seen
    run_experiment(experiment, stopped, Silence())
    assert outcome(stopped) == outcome(finished)


@pytest.mark.parametrize("suffix", [".safetensors", ".json", ".jsonl"])
def test_one_byte_of_each_file_that_counts_is_noticed(experiment: Experiment, stopped: Path, suffix: str) -> None:
    for name in [name for name in files_of(stopped) if Path(name).suffix == suffix]:
        data = bytearray((stopped / name).read_bytes())
        place = data.index(b"1") if suffix != ".safetensors" else -1
        data[place] ^= 2
        copy = copy_with(stopped, stopped.parent / "copy", name, bytes(data))
        with pytest.raises(RunError, match=rf"{Path(name).name} is damaged: .*; restore it from a copy, or remove"):
            run_experiment(experiment, copy, Silence())
        if name.startswith("checkpoint/task"):
            assert told(copy) == told(stopped)
        else:
            with pytest.raises(RunError, match=rf"{Path(name).name} is damaged"):
                told(copy)


def test_one_byte_of_the_rows_of_all_tasks_is_noticed(experiment: Experiment, finished: Path) -> None:
    data, before = (finished / ROWS).read_bytes(), told(finished)
    (finished / ROWS).write_bytes(data[:-1] + bytes([data[-1] ^ 2]))
    with pytest.raises(RunError, match=r"rows\.bin is damaged: .*; restore it from a copy, or remove"):
        run_experiment(experiment, finished, Silence())
    assert told(finished) == before
    values = json.loads((finished / POSITION).read_text())
    (finished / POSITION).write_text(json.dumps(seal({**values, "rows_bytes": 0, "rows_digest": NO_BYTES})))
    with pytest.raises(
        RunError, match=r"position\.json is damaged: what it counts is not what .*finished\.jsonl tells"
    ):
        told(finished)


def test_a_finished_run_whose_model_was_lost_gets_it_again(experiment: Experiment, finished: Path) -> None:
    before = outcome(finished)
    shutil.rmtree(finished / "model")
    run_experiment(experiment, finished, Silence())
    assert outcome(finished) == before
    (finished / "model" / "model.json").write_text("{")
    with pytest.raises(ClareError, match=r"model\.json is not valid JSON .*; restore the folder from a copy"):
        run_experiment(experiment, finished, Silence())


@pytest.mark.parametrize("task", [-1, 99, 1e9, 10**9, True, "1", None])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_position_that_cannot_be_is_refused(tmp_path: Path, task: Any, is_old: bool, stopped: Path) -> None:
    folder = shutil.copytree(RELEASED, tmp_path / "old") if is_old else stopped
    values = json.loads((folder / POSITION).read_text())
    (folder / POSITION).write_text(json.dumps({**values, "task": task}))
    run = RunFolder(folder, writes=True)
    with pytest.raises(RunError, match=r"position\.json is damaged: .*; restore it from a copy"):
        run.inspect(json.loads((folder / "preset.json").read_text()))
    with pytest.raises(RunError, match=r"position\.json is damaged: "):
        read_run(folder)
    if not is_old:
        (folder / POSITION).write_text(json.dumps(seal({**values, "task": task})))
        with pytest.raises(RunError, match=r"position\.json is damaged: (task is|what it says)"):
            read_run(folder)


def test_a_position_of_a_newer_release_is_no_damage(stopped: Path) -> None:
    values = json.loads((stopped / POSITION).read_text())
    (stopped / POSITION).write_text(json.dumps(seal({**values, "later": 1})))
    with pytest.raises(RunError, match=r"position\.json comes from a newer CLARE: it names later; go on with that rel"):
        read_run(stopped)


def test_an_old_position_that_counts_other_tasks_than_the_record_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(RELEASED, tmp_path / "old")
    preset = json.loads((folder / "preset.json").read_text())
    (folder / "checkpoint" / "task-0002.safetensors").rename(folder / "checkpoint" / "task-0003.safetensors")
    values = json.loads((folder / POSITION).read_text())
    (folder / POSITION).write_text(json.dumps({**values, "task": 3, "learner": "task-0003.safetensors"}))
    with pytest.raises(RunError, match=r"position\.json counts 3 finished tasks where record\.jsonl tells of 2"):
        RunFolder(folder, writes=True).inspect(preset)


@pytest.mark.parametrize("name", files_of(RELEASED))
def test_what_an_old_run_lost_is_told(tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(RELEASED, tmp_path / "old")
    preset = json.loads((folder / "preset.json").read_text())
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"{Path(name).name} cannot be read|holds no run"):
        RunFolder(folder, writes=True).inspect(preset)


def test_an_old_run_gets_digests_with_its_next_commit(tmp_path: Path) -> None:
    folder = shutil.copytree(RELEASED, tmp_path / "old")
    preset = completed(json.loads((folder / "preset.json").read_text()))
    assert not read_position(folder).has_digests
    run = RunFolder(folder, writes=True)
    run.inspect(preset)
    run.begin(preset, {})
    run.commit()
    position = read_position(folder)
    assert sorted(position.files) == sorted({*files_of(RELEASED)} - {"record.jsonl", POSITION})
    assert (position.task, position.learner) == (2, "task-0002.safetensors")
    (folder / "predictions" / "task-0000.safetensors").write_bytes(b"other")
    with pytest.raises(RunError, match=r"task-0000\.safetensors is damaged: its content is not what the run wrote"):
        RunFolder(folder, writes=True).inspect(preset)


def test_what_was_not_committed_is_not_read(stopped: Path) -> None:
    before = told(stopped)
    with (stopped / "record.jsonl").open("a") as record:
        record.write(json.dumps({**events(stopped)[-1], "event": "end"}) + "\n")
    assert told(stopped) == before


def check_damages(
    experiment: Experiment, folder: Path, finished: Path, damages: Iterable[tuple[str, str, bytes | None]]
) -> int:
    """Read a run and let it go on after each of some damages, and return how many changed nothing."""
    before, expected, copy = told(folder), outcome(finished), folder.parent / "copy"
    num_harmless = 0
    for what, name, data in damages:
        copy_with(folder, copy, name, data)
        try:
            check_reading(copy, before, name)
            num_harmless += check_resuming(experiment, copy, expected, name)
        except Exception as error:
            raise AssertionError(what) from error
    return num_harmless


def test_every_loss_is_told(experiment: Experiment, stopped: Path, finished: Path) -> None:
    # The line break at the end of position.json says nothing.
    assert check_damages(experiment, stopped, finished, losses(stopped)) == 1


def test_every_loss_of_a_finished_run_is_told(experiment: Experiment, finished: Path) -> None:
    # The line breaks of position.json and model.json, and a model.json that is gone, which is written again.
    assert check_damages(experiment, finished, finished, losses(finished)) == 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("which", ["stopped", "finished"])
def test_200_damaged_bytes_of_every_file(
    request: pytest.FixtureRequest, experiment: Experiment, finished: Path, which: str
) -> None:
    folder = request.getfixturevalue(which)
    num_damages = 200 * len(files_of(folder))
    num_harmless = check_damages(experiment, folder, finished, flips(folder, 200, seed=19))
    # White space between the values of JSON, of which position.json and model.json have much.
    assert num_harmless < num_damages / 10


def test_a_position_that_names_files_elsewhere_is_refused(stopped: Path) -> None:
    values = json.loads((stopped / POSITION).read_text())
    for name in ("../../secret", "/etc/passwd", "checkpoint/../../x.safetensors", "log.txt"):
        (stopped / POSITION).write_text(json.dumps(seal({**values, "files": {name: "0" * 64}})))
        with pytest.raises(RunError, match=r"position\.json is damaged: files"):
            read_position(stopped)
