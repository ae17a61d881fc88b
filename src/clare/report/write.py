"""A report of some runs in a folder: page, figures, tables and numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from clare.files import write_json, write_text
from clare.report.figure_files import write_plots
from clare.report.groups import Standing, compare
from clare.report.page import build_page
from clare.report.record import RunRecord
from clare.report.standings import DEFINITIONS, Failure, standing_sheets, to_page
from clare.report.summary import summary_of


def write_report(
    runs: Sequence[RunRecord],
    folder: Path,
    title: str,
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure] = (),
) -> Path:
    """Write plots, summary.json, comparison.md and the page, which needs nothing but itself, and return its path."""
    comparisons, page = compare(runs), folder / "report.html"
    write_plots(runs, folder / "plots")
    write_json(folder / "summary.json", summary_of(runs, comparisons, ranking, failures))
    tables = to_page(title, standing_sheets(ranking, failures), failures, DEFINITIONS)
    write_text(folder / "comparison.md", tables)
    write_text(page, build_page(comparisons, title, ranking, failures))
    return page
