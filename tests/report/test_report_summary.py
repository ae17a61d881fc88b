"""The summary file: its keys, its figures and its differences."""

import json
from pathlib import Path

import pytest
from fake_runs import write_run

from clare.metrics.summary import summarise
from clare.report.record import find_runs
from clare.report.summary import write_summary


def test_methods_are_the_top_level(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "finetune", skill=0.5, decay=0.2, seed=1)
    write_run(tmp_path / "runs" / "b", "clare", seed=2)
    runs = find_runs([tmp_path / "runs"])
    path = write_summary(runs, tmp_path / "out")
    assert path == tmp_path / "out" / "summary.json"
    assert [file.name for file in path.parent.iterdir()] == ["summary.json"]
    summary = json.loads(path.read_text())
    assert list(summary) == ["finetune", "clare"]
    assert summary["clare"] == summarise(runs[1]) | {"num_tasks": 3, "finished": True, "seed": 1993}
    differences = summary["finetune"]["difference_to_clare"]
    assert list(differences) == ["average_accuracy", "final_accuracy", "forgetting"]
    for name, (difference, low, high) in differences.items():
        assert low <= difference <= high
        assert difference == pytest.approx(summary["finetune"][name] - summary["clare"][name], abs=2e-6)


def test_runs_of_one_method_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", "clare", seed=1)
    write_run(tmp_path / "runs" / "two", "clare", seed=2)
    write_run(tmp_path / "runs" / "three", "ease", seed=3)
    summary = json.loads(write_summary(find_runs([tmp_path / "runs"]), tmp_path).read_text())
    assert list(summary) == ["clare@one", "ease", "clare@two"]
    assert "difference_to_clare" in summary["clare@two"]
    assert "difference_to_clare" not in summary["clare@one"]


def test_other_streams_and_unfinished_runs_have_no_difference(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "clare")
    write_run(tmp_path / "runs" / "b", "ease", task_sizes=(3, 3))
    write_run(tmp_path / "runs" / "c", "l2p", num_tasks=0)
    summary = json.loads(write_summary(find_runs([tmp_path / "runs"]), tmp_path).read_text())
    assert not any("difference_to_clare" in figures for figures in summary.values())
    assert summary["l2p"]["average_accuracy"] is None
    assert summary["l2p"]["finished"] is False
