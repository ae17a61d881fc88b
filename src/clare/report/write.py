"""A report of some runs in a folder: page, figures, tables and numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from clare.report.figure_files import write_plots
from clare.report.groups import Standing, compare
from clare.report.page import write_page
from clare.report.record import RunRecord
from clare.report.standings import Failure, write_comparison
from clare.report.summary import write_summary


def write_report(
    runs: Sequence[RunRecord],
    folder: Path,
    title: str,
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure] = (),
) -> Path:
    """Write plots, summary.json, comparison.md and the page, and return the page's path."""
    comparisons = compare(runs)
    write_plots(runs, folder / "plots")
    write_summary(runs, folder, failures, ranking, comparisons)
    write_comparison(ranking, failures, title, folder)
    return write_page(runs, folder / "report.html", title, failures, ranking, comparisons)
