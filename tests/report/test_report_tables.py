"""Comparisons and tables, seen through their renderers."""

import io
from pathlib import Path

import pytest
from fake_runs import write_run
from rich.console import Console
from rich.table import Table

from clare.errors import RunError
from clare.metrics.bootstrap import Interval
from clare.metrics.summary import summarise
from clare.report.groups import compare, label_runs
from clare.report.record import RunRecord, find_runs, read_run
from clare.report.standings import comparison_sheet, comparison_table
from clare.report.tables import (
    Sheet,
    duration,
    percent,
    phase_sheet,
    points,
    task_sheet,
    to_markdown,
    to_rich,
)


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    write_run(tmp_path / "a", "finetune", skill=0.6, decay=0.3, seed=1, with_capacity=False)
    write_run(tmp_path / "b", "clare", seed=2)
    write_run(tmp_path / "c", "ease", num_tasks=2, seed=3)
    write_run(tmp_path / "d", "l2p", task_sizes=(3, 3), seed=4)
    return find_runs([tmp_path])


def shown(table: Table, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_numbers_for_people() -> None:
    assert percent(0.12345) == "12.3"
    assert percent(None) == percent(float("nan")) == "-"
    assert points(Interval(0.051, -0.0123, 0.2)) == "+5.1 [-1.2, +20.0]"
    assert [duration(seconds) for seconds in (3.21, 90, 3600 + 300)] == ["3.2 s", "2 min", "1 h 05 min"]


def test_each_run_is_compared_with_clare_on_its_stream(runs: list[RunRecord]) -> None:
    comparisons = compare(runs)
    assert [each.group.label for each in comparisons] == ["finetune", "clare", "ease", "l2p"]
    assert [each.note for each in comparisons] == ["", "reference", "unfinished", "different stream"]
    assert [each.against and each.against.label for each in comparisons] == ["clare", "clare", "clare", None]
    interval = comparisons[0].intervals["average_accuracy"]
    figures = [summarise(each.run)["average_accuracy"] for each in comparisons[:2]]
    assert figures[0] is not None
    assert figures[1] is not None
    assert interval.difference == pytest.approx(figures[0] - figures[1], abs=1e-5)
    assert interval.low < interval.difference < interval.high < 0


def test_an_interval_does_not_depend_on_the_other_runs(runs: list[RunRecord]) -> None:
    assert compare(runs)[0].intervals == compare(runs[:2])[0].intervals


def test_without_clare_the_first_run_is_the_reference(runs: list[RunRecord]) -> None:
    assert [each.note for each in compare([runs[0], runs[2]])] == ["reference", "unfinished"]


def test_runs_with_other_seeds_are_compared_within_their_stream(tmp_path: Path) -> None:
    for seed, classes in enumerate(["abcdef", "fedcba"]):
        write_run(tmp_path / f"clare-{seed}", "clare", classes=classes, seed=seed)
        write_run(tmp_path / f"ease-{seed}", "ease", classes=classes, seed=seed + 9)
    comparisons = compare(find_runs([tmp_path]))
    assert [each.group.label for each in comparisons] == [
        "clare@clare-0",
        "clare@clare-1",
        "ease@ease-0",
        "ease@ease-1",
    ]
    assert [each.against and each.against.label for each in comparisons] == ["clare@clare-0", "clare@clare-1"] * 2
    assert [bool(each.intervals) for each in comparisons] == [False, False, True, True]


def test_missing_predictions_leave_the_figures(runs: list[RunRecord]) -> None:
    (runs[0].folder / "predictions" / "task-0000.safetensors").unlink()
    compared = compare(runs)[0]
    assert compared.note == "no shared predictions"
    assert summarise(compared.run)["average_accuracy"] is not None


def test_labels_tell_runs_apart(tmp_path: Path) -> None:
    folders = [tmp_path / "x" / "run", tmp_path / "y" / "run", tmp_path / "z"]
    runs = [read_run(write_run(folder, "clare")) for folder in folders] + [read_run(write_run(tmp_path / "e", "ease"))]
    assert label_runs(runs) == ["clare@x/run", "clare@y/run", "clare@z", "ease"]


def test_nothing_to_compare_is_said() -> None:
    with pytest.raises(RunError, match="no run to compare"):
        compare([])


def test_the_task_table_shows_each_task(runs: list[RunRecord]) -> None:
    sheet = task_sheet(runs[1])
    first = runs[1].tasks[0]
    accuracy = f"{100 * first.seen:.1f}"
    assert sheet.rows[0] == ("1", "2", accuracy, accuracy, accuracy, "-", "-", "5.0", "11.0 s")
    assert len(sheet.rows) == 3
    assert task_sheet(runs[0]).rows[0][7] == "-"
    assert "2 of 3 tasks" in task_sheet(runs[2]).title
    assert accuracy in shown(to_rich(task_sheet(runs[1])))


def test_the_comparison_table_shows_intervals_and_notes(runs: list[RunRecord]) -> None:
    output = shown(comparison_table(runs), width=80)
    interval = compare(runs)[0].intervals["final_accuracy"]
    assert f"[{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]" in output
    assert "different stream" in output
    assert "unfinished" in output
    assert max(map(len, output.splitlines())) <= 80


def test_all_three_differences_are_in_the_sheet(runs: list[RunRecord]) -> None:
    sheet = comparison_sheet(compare(runs))
    assert sheet.header[-3:] == ("Δ average", "Δ final", "Δ forgetting")
    assert all(len(row) == len(sheet.header) for row in sheet.rows)
    assert sheet.rows[0][-1] == points(compare(runs)[0].intervals["forgetting"])
    assert sheet.rows[3][-3:] == ("different stream", "-", "-")


def test_the_phase_sheet_averages_losses_over_tasks(runs: list[RunRecord]) -> None:
    assert phase_sheet(runs[1]).rows == (
        ("probe", "3", "1.000", "0.500", "4.5 s"),
        ("train", "3", "0.900", "0.200", "9.0 s"),
    )


def test_markdown_keeps_cells_in_their_columns() -> None:
    sheet = Sheet("Title", ("Name", "Value"), (("a|b\nc", "<b>"),))
    expected = "**Title**\n\n| Name | Value |\n|:---|---:|\n| a\\|b c | \\<b> |\n"
    assert to_markdown(sheet) == expected


def test_brackets_are_no_markup(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", "[red]x[/red]"))
    assert "[red]x[/red]" in shown(to_rich(task_sheet(run)))
    assert "[red]x[/red]" in shown(comparison_table([run]))
