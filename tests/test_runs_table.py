"""Runs as a table for pandas."""

import sys
from pathlib import Path

import pytest
from fake_runs import write_run

import clare
from clare.errors import RunError
from clare.report.record import read_run
from clare.results import rows_of


def test_there_is_a_row_for_each_task_with_settings_under_dotted_names(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "clare", [2, 3, 2], num_tasks=2, preset={"seed": 7})
    run = read_run(folder)
    rows = list(rows_of(run))
    assert [(row["task"], row["num_classes"], row["num_tasks"]) for row in rows] == [(1, 2, 3), (2, 5, 3)]
    last = rows[-1]
    assert (last["seen_accuracy"], last["new_accuracy"]) == (run.tasks[-1].seen, run.tasks[-1].new)
    assert last["per_task"] == list(run.tasks[-1].per_task)
    assert (last["preset"], last["method"], last["seed"], last["finished"]) == ("quickdraw", "clare", 7, False)
    assert (last["method.epochs"], last["data.name"], last["torch"]) == (20, "quickdraw", "2.15.0")
    assert last["commit"] is None
    assert last["started"].isoformat() == "2001-09-09T01:46:40+00:00"


def test_runs_are_found_at_any_depth_and_once(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for name in ("compare/clare-1", "compare/clare-2", "single"):
        write_run(tmp_path / name, preset={"seed": len(name)})
    table = clare.results.load(tmp_path, tmp_path / "single")
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == 9
    assert table.groupby("run")["seen_accuracy"].mean().between(0, 1).all()


def test_a_missing_pandas_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RunError, match=r"needs the package pandas, .*; run pip install 'clare\[pandas\]'"):
        clare.results.load(tmp_path)


def test_a_folder_without_runs_is_told_in_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.raises(RunError, match=r"there is no run in .*; give a folder below which"):
        clare.results.load(str(tmp_path))
