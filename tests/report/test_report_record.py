"""Reading run folders: whole, killed, resumed and damaged ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_runs import write_run

from clare.engine.evaluate import accuracies
from clare.errors import RunError
from clare.metrics.summary import run_matrix
from clare.report.record import find_runs, read_run


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]


def write_events(folder: Path, events: list[dict[str, Any]]) -> None:
    (folder / "record.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def test_a_whole_run_is_read(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", "ease"))
    assert run.finished
    assert run.method == "ease"
    assert run.folder == (tmp_path / "run").resolve()
    assert run.start.task_sizes == (2, 2, 2)
    assert run.num_classes_seen == (2, 4, 6)
    assert run.preset["seed"] == 1993
    assert run.environment["device"] == "cpu"
    assert [task.task for task in run.tasks] == [0, 1, 2]
    assert run.tasks[0].capacity_used == pytest.approx(0.05)
    assert run.tasks[0].seconds == 11.0
    assert [(phase.task, phase.phase) for phase in run.phases[:3]] == [(0, "probe"), (0, "train"), (1, "probe")]
    assert run.phases[1].loss == (0.9, 0.4, 0.2)
    assert (run.phases[1].num_trained, run.num_trained) == (300, 1200)
    assert (run.tasks[2].num_stored, run.tasks[2].passes_per_image) == (3600, 2)
    assert run.head == ""


def test_the_head_is_read_from_the_preset(tmp_path: Path) -> None:
    method = {"name": "ease", "head": {"kind": "aligned", "form": "cosine", "scale": 20}}
    assert read_run(write_run(tmp_path / "run", "ease", preset={"method": method})).head == "cosine, aligned"
    assert read_run(write_run(tmp_path / "odd", "ease", preset={"method": "ease"})).head == ""


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ({"blocks": 1, "patches": False, "centre": False}, "trained"),
        ({"blocks": 6}, "trained, 6 blocks"),
        ({"blocks": 1, "patches": True}, "trained, 1 block with patches"),
        ({"blocks": 6, "patches": True, "centre": True}, "trained, 6 blocks with middle patches"),
        ({"views": 1}, "trained"),
        ({"blocks": 6, "views": 3}, "trained, 6 blocks, 3 views"),
    ],
)
def test_heads_that_read_something_else_are_told_apart(tmp_path: Path, reading: dict[str, object], words: str) -> None:
    method = {"name": "clare", "head": {"kind": "trained"}, "features": reading}
    assert read_run(write_run(tmp_path / "run", "clare", preset={"method": method})).head == words


def test_the_head_of_a_run_of_before_is_named_as_it_would_be_today(tmp_path: Path) -> None:
    head = {"form": "cosine", "strategy": "projected", "read_blocks": 2, "read_looks": 3, "own_share": 0.1}
    method = {"name": "clare", "head": head}
    label = read_run(write_run(tmp_path / "run", "clare", preset={"method": method})).head
    assert label == "cosine, ridge, 2 blocks, 3 views"


def test_the_predictions_agree_with_the_record(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    each = run.evaluations
    for task, (predicted, target) in enumerate(zip(each.predicted, each.target, strict=True)):
        found = accuracies(*map(torch.as_tensor, (predicted, target, each.task_of_class)), task)
        np.testing.assert_allclose(found["per_task"], run_matrix(run)[task, : task + 1])


def test_a_run_may_be_cut_anywhere_after_its_start(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    whole = read_run(folder)
    record = folder / "record.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines) - 1):
        begun = lines[count][: len(lines[count]) // 2]
        record.write_bytes(b"".join([*lines[:count], begun]))
        cut = read_run(folder)
        assert not cut.finished
        num_tasks = sum(json.loads(line)["event"] == "task" for line in lines[:count])
        assert cut.tasks == whole.tasks[:num_tasks]


def test_a_cut_inside_a_letter_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with (folder / "record.jsonl").open("ab") as file:
        file.write('{"event": "phase", "phase": "ü'.encode()[:-1])
    assert read_run(folder).finished


def test_a_resumed_run_counts_the_last_telling(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", num_tasks=2)
    events = events_of(folder)
    again = json.loads(json.dumps(events[-1]))
    again["accuracy"]["seen"] = 0.123
    write_events(folder, [*events, events[0], events[-2], again])
    run = read_run(folder)
    assert [task.seen for task in run.tasks][1:] == [0.123]
    assert len(run.phases) == 4
    assert not run.finished


def test_a_finished_run_that_starts_again_is_unfinished(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    events = events_of(folder)
    write_events(folder, [*events, events[0]])
    assert not read_run(folder).finished


def test_null_accuracies_and_missing_extras_are_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", with_capacity=False)
    events = events_of(folder)
    for event in events:
        event.pop("parameters", None)
        if event["event"] == "task":
            event["accuracy"]["per_task"][0] = None
    write_events(folder, [*events, {"event": "unheard of"}])
    run = read_run(folder)
    assert np.isnan(run.tasks[0].per_task[0])
    assert run.tasks[0].num_stored is run.tasks[0].capacity_used is None


def test_a_diagnosis_is_read_and_older_records_have_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert [task.diagnosis for task in read_run(folder).tasks] == [{}, {}, {}]
    events = events_of(folder)
    events[3]["diagnosis"] = {"movement": {"counts": [1, 2]}}
    events[6]["diagnosis"] = None
    write_events(folder, events)
    assert [task.diagnosis for task in read_run(folder).tasks] == [{"movement": {"counts": [1, 2]}}, {}, {}]


@pytest.mark.parametrize("name", ["preset.json", "environment.json", "record.jsonl"])
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"is no run, it has no {name}"):
        read_run(folder)


def test_a_run_that_has_not_started_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "record.jsonl").write_text('{"event": "sta')
    with pytest.raises(RunError, match="has not started"):
        read_run(folder)


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "record.jsonl").read_text().splitlines()
    lines[2] = lines[2][:10]
    (folder / "record.jsonl").write_text("\n".join(lines))
    with pytest.raises(RunError, match=r"line 3 of .* is damaged"):
        read_run(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"accuracy": {"seen": 0.5}},
        {"accuracy": None},
        {"accuracy": {"seen": 0.5, "new": 0.5, "first": 0.5, "per_task": [0.5, 0.5]}},
        {"capacity": [1]},
        {"diagnosis": [1]},
        {"seconds": {"learn": "long", "evaluate": 1}},
        {"task": float("inf")},
        {"task": 1.5},
        {"parameters": {"stored": float("inf")}},
        {"memory": {"peak": -1}},
        {"seconds": {"learn": float("nan"), "evaluate": 1}},
    ],
)
def test_an_event_of_the_wrong_form_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = write_run(tmp_path / "run")
    events = events_of(folder)
    events[3] |= change
    write_events(folder, events)
    with pytest.raises(RunError, match=r"line 4 of .* is no valid task event"):
        read_run(folder)


def test_classes_must_fill_the_tasks(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    events = events_of(folder)
    events[0]["task_sizes"] = [2, 2]
    write_events(folder, events)
    with pytest.raises(RunError, match="6 classes in tasks of 4"):
        read_run(folder)


def test_a_gap_between_tasks_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    write_events(folder, [event for event in events_of(folder) if event.get("task") != 1])
    with pytest.raises(RunError, match=r"tells of the tasks \[0, 2\]"):
        read_run(folder)


@pytest.mark.parametrize(
    ("content", "reason"), [("{", "not valid JSON"), ("[]", "holds a list"), ("{}", "has no name")]
)
def test_a_broken_preset_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "preset.json").write_text(content)
    with pytest.raises(RunError, match=reason):
        read_run(folder)


def test_missing_predictions_are_missed_only_when_asked_for(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "predictions" / "task-0001.safetensors").write_bytes(b"no tensors")
    (folder / "predictions" / "task-0002.safetensors").unlink()
    run = read_run(folder)
    with pytest.raises(RunError, match=r"could not read the predictions .*task-0001"):
        _ = run.evaluations
    (folder / "predictions" / "task-0001.safetensors").unlink()
    with pytest.raises(RunError, match=r"task-0001.safetensors cannot be read \(No such file or directory\); restore"):
        _ = run.evaluations


def test_runs_are_found_one_level_down_and_once(tmp_path: Path) -> None:
    second, first = write_run(tmp_path / "b"), write_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    (tmp_path / "starting").mkdir()
    (tmp_path / "starting" / "record.jsonl").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert [run.folder for run in find_runs([tmp_path])] == [first.resolve(), second.resolve()]
    assert [run.folder for run in find_runs([second, tmp_path])] == [second.resolve(), first.resolve()]


def test_nothing_found_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no run"):
        find_runs([tmp_path])
    with pytest.raises(RunError, match="there is no folder"):
        find_runs([tmp_path / "nowhere"])
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(RunError, match=r"notes.txt is a file; give a run"):
        find_runs([tmp_path / "notes.txt"])
    with pytest.raises(RunError, match="no folder of a run was given"):
        find_runs([])
