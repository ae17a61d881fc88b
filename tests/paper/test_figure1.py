"""Figure 1: what the histogram tells, and that it can be drawn even where runs failed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiment_worlds import results_of

from clare.paper import figure1
from clare.paper.paper import STUDIES
from clare.paper.results import Results
from clare.record import StartEvent, TaskEvent
from clare.report.record import RunRecord

MOVEMENT: dict[str, Any] = {
    "edges": [1e-9, 1e-3, 1e-2, 5e-2, 1.0],
    "counts": [50, 30, 6, 4],
    "num_unmoved": 10,
    "threshold": None,
    "num_at_least_0.05": 4,
}


def with_movement(results: Results, movement: dict[str, Any] | None) -> Results:
    """Give the row of full fine-tuning a record with this histogram."""
    diagnosis = {} if movement is None else {"movement": movement}
    task = TaskEvent(
        task=0, seen=1, new=1, first=1, per_task=(1,), learn_seconds=1, evaluate_seconds=1, diagnosis=diagnosis
    )
    start = StartEvent(time=0, method="full-finetune", classes=("a",), task_sizes=(1,))
    record = RunRecord(Path("run"), {"name": "x", "seed": 1}, {}, start, (), (task,), finished=True)
    cells = dict(results.cells)
    cells["here", STUDIES["figure1"].reference] = replace(
        cells["here", STUDIES["figure1"].reference], records=(record,)
    )
    return replace(results, cells=cells)


def full_results() -> Results:
    """Return results in which every share was run."""
    return results_of("figure1", {f"share-{share:g}": 60 + share / 10 for share in (100, 50, 20, 10, 5, 1, 0.1)})


def test_a_histogram_is_told_in_words() -> None:
    assert figure1.share_below(MOVEMENT, 0.01) == pytest.approx(0.9)
    assert figure1.share_below(MOVEMENT, 0.02) == pytest.approx(0.9)
    assert figure1.count_large(MOVEMENT) == 4
    (sentence,) = figure1.sentences(with_movement(full_results(), MOVEMENT))
    assert "of 100 weights 4 moved by 0.05 or more, and at least 90.00 % by less than 0.01" in sentence
    nearly = {**MOVEMENT, "num_unmoved": 999_910, "counts": [50, 30, 6, 4]}
    (sentence,) = figure1.sentences(with_movement(full_results(), nearly))
    assert "at least 99.99 % by less than 0.01" in sentence
    (nothing,) = figure1.sentences(with_movement(full_results(), None))
    assert "left no histogram" in nothing


def test_the_figure_shows_both_sides() -> None:
    left, right = figure1.draw(with_movement(full_results(), MOVEMENT), "here").axes
    assert left.get_xscale() == left.get_yscale() == right.get_xscale() == "log"
    line = right.get_lines()[0]
    assert list(line.get_xdata()) == [100, 50, 20, 10, 5, 1, 0.1]
    assert list(line.get_ydata()) == pytest.approx([70, 65, 62, 61, 60.5, 60.1, 60.01])


def test_failed_shares_leave_a_figure_without_them(tmp_path: Path) -> None:
    results = results_of("figure1", {"share-50": 61.0})
    assert figure1.write_figures(results, tmp_path) == ["![Updates and accuracy on quickdraw-20x10](figure1.png)"]
    assert (tmp_path / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figure1.svg").read_text()
    assert figure1.as_values(results) == {"movement": {"here": None}}


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    results = with_movement(full_results(), MOVEMENT)
    texts = []
    for name in ("one", "two"):
        figure1.write_figures(results, tmp_path / name)
        texts.append((tmp_path / name / "figure1.svg").read_text())
    assert texts[0] == texts[1]
