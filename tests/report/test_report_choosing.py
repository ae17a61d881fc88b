"""The picture to choose a method by: what is in it, what is marked, and where it is shown."""

from io import StringIO
from pathlib import Path

import pytest
from fake_runs import write_run
from matplotlib.colors import to_hex
from rich.console import Console

from clare.report.choosing import AXES, choices_of, choosing_figure
from clare.report.groups import Group, group_runs, rank
from clare.report.plots import styles_of
from clare.report.record import find_runs
from clare.report.standings import HEAVY, print_standings, standing_sheets
from clare.report.write import write_report

STORED = 3600
"""Numbers that a run of these tests keeps after its last task."""


@pytest.fixture
def groups(tmp_path: Path) -> list[Group]:
    """Runs of three methods, of which one keeps pictures and one is told the task."""
    write_run(tmp_path / "clare", training_bytes=5 * STORED)
    write_run(tmp_path / "icarl", "icarl", skill=0.7, num_pictures=10, training_bytes=5 * STORED)
    write_run(tmp_path / "gem", "gem", skill=0.6, is_told=True, given=0.9, training_bytes=5 * STORED)
    return group_runs(find_runs([tmp_path]))


def test_methods_that_keep_more_than_the_training_images_take_are_marked(groups: list[Group]) -> None:
    stored = {group.label: group.costs["num_stored"] for group in groups}
    assert stored["clare"] == STORED
    # 14,400 bytes are less than 18,000; with ten pictures of 784 bytes they are more.
    assert {group.label: group.is_heavy for group in groups} == {"clare": False, "icarl": True, "gem": False}
    choices = choices_of(groups)
    assert [choice.label for choice in choices] == ["clare", "icarl"]
    figure = choosing_figure(choices, styles_of(groups), training_bytes=5 * STORED)
    for place, axes in enumerate(figure.axes):
        assert axes.get_xlabel() == "" or axes.xaxis.get_label_text() == AXES[place]
        marks = {line.get_gid(): line for line in axes.lines if line.get_gid()}
        assert set(marks) == {f"clare {place}", f"icarl {place}"}
        assert to_hex(marks[f"icarl {place}"].get_markerfacecolor()) == "#ffffff"
        assert to_hex(marks[f"clare {place}"].get_markerfacecolor()) != "#ffffff"
        assert marks[f"clare {place}"].get_xdata()[0] == choices[0].costs[place][0]
        assert marks[f"clare {place}"].get_ydata()[0] == choices[0].accuracy
    (limit,) = (line for line in figure.axes[0].lines if not line.get_gid())
    assert list(limit.get_xdata()) == [5 * STORED / 4] * 2


def test_a_record_without_the_size_of_the_images_marks_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "clare", num_pictures=10**6)
    (group,) = group_runs(find_runs([tmp_path]))
    assert not group.is_heavy


def test_the_terminal_says_what_the_mark_means(groups: list[Group], tmp_path: Path) -> None:
    runs = [run for group in groups for run in group.runs]
    for shown, expected in ((runs, True), ([run for run in runs if run.method != "icarl"], False)):
        console = Console(width=200, file=StringIO())
        print_standings(console, rank(shown), [])
        assert ("† keeps numbers that take more" in console.file.getvalue()) == expected  # type: ignore[attr-defined]


def test_every_report_of_several_methods_has_the_picture_and_the_mark(groups: list[Group], tmp_path: Path) -> None:
    runs = [run for group in groups for run in group.runs]
    page = write_report(runs, tmp_path / "report", "Methods", rank(runs)).read_text()
    assert 'id="figure-choosing"' in page
    assert "Which method to choose" in page
    assert (tmp_path / "report" / "plots" / "choosing.svg").is_file()
    cells = {row[0]: row for sheet in standing_sheets(rank(runs)) for row in sheet.rows}
    marked = {label.partition(" ")[0] for label, row in cells.items() if any(HEAVY in cell for cell in row)}
    assert marked == {"icarl"}
