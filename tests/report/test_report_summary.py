"""The summary file: its keys, its figures and its differences."""

import json
from pathlib import Path

import pytest
from fake_runs import summary_of_runs, write_run

from clare.metrics.summary import summarise
from clare.report.groups import rank
from clare.report.record import find_runs
from clare.report.standings import Failure
from clare.report.write import write_report


def test_methods_are_the_top_level(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "finetune", skill=0.5, decay=0.2, seed=1)
    write_run(tmp_path / "runs" / "b", "clare", seed=2)
    runs = find_runs([tmp_path / "runs"])
    write_report(runs, tmp_path / "out", "Two methods", rank(runs))
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"comparison.md", "plots", "report.html", "summary.json"}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary == summary_of_runs(runs)
    assert list(summary) == ["finetune", "clare"]
    assert summary["clare"]["runs"] == {"clare": summarise(runs[1]) | {"num_tasks": 3, "finished": True, "seed": 1993}}
    figures = {name: summary["clare"][name] for name in ("average_accuracy", "final_accuracy", "forgetting")}
    assert figures == {name: summary["clare"]["runs"]["clare"][name] for name in figures}
    assert (summary["clare"]["seeds"], summary["clare"]["deviation"]) == ([1993], None)
    costs = ("num_trained", "num_stored", "passes_per_image", "seconds")
    assert [summary["clare"][name] for name in costs] == [1200, 3600, 2, 33.0]
    differences = summary["finetune"]["runs"]["finetune"]["difference_to_clare"]
    assert list(differences) == ["average_accuracy", "final_accuracy", "forgetting"]
    assert summary["finetune"]["difference_to_clare"] == {"final_accuracy": differences["final_accuracy"]}
    for name, (difference, low, high) in differences.items():
        assert low <= difference <= high
        assert difference == pytest.approx(summary["finetune"][name] - summary["clare"][name], abs=2e-6)


def test_runs_of_one_method_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", "clare", seed=1)
    write_run(tmp_path / "runs" / "two", "clare", seed=2)
    write_run(tmp_path / "runs" / "three", "ease", seed=3)
    summary = summary_of_runs(find_runs([tmp_path / "runs"]))
    assert list(summary) == ["clare@one", "ease", "clare@two"]
    assert "difference_to_clare" in summary["clare@two"]
    assert "difference_to_clare" not in summary["clare@one"]


def test_other_streams_and_unfinished_runs_have_no_difference(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "clare")
    write_run(tmp_path / "runs" / "b", "ease", task_sizes=(3, 3))
    write_run(tmp_path / "runs" / "c", "l2p", num_tasks=0)
    summary = summary_of_runs(find_runs([tmp_path / "runs"]))
    assert not any("difference_to_clare" in figures for figures in summary.values())
    assert summary["l2p"]["average_accuracy"] is None
    assert summary["l2p"]["finished"] is False


def test_seeds_are_averaged_and_failures_named(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"clare-{seed}", seed=seed, preset={"seed": seed})
    runs = find_runs([tmp_path / "runs"])
    failures = [Failure("ease-1", "", "it diverged")]
    summary = summary_of_runs(runs, failures)
    assert list(summary) == ["clare", "ease-1"]
    assert summary["ease-1"] == {"failed": "it diverged"}
    assert list(summary["clare"]["runs"]) == ["clare@clare-1", "clare@clare-2"]
    one, two = (summarise(run)["final_accuracy"] or 0 for run in runs)
    assert summary["clare"]["final_accuracy"] == pytest.approx((one + two) / 2, abs=1e-6)
    assert summary["clare"]["deviation"]["final_accuracy"] == pytest.approx(abs(one - two) / 2**0.5, abs=1e-6)
