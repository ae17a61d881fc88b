"""`clare show` and `clare plot`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from clare.report.page import write_page
from clare.report.plots import write_plots
from clare.report.record import RunRecord, find_runs
from clare.report.summary import write_summary
from clare.report.tables import comparison_table, task_table


def show_command(console: Console, paths: list[Path]) -> None:
    """Print each run's table and the comparison of all."""
    runs = find_runs(paths)
    for run in runs:
        console.print(task_table(run))
    console.print(comparison_table(runs))


def plot_command(console: Console, paths: list[Path], out: Path) -> None:
    """Write pictures, summary and page of some runs."""
    page = write_report(find_runs(paths), out, None, "Continual learning report")
    console.print(f"report: {page}", soft_wrap=True, highlight=False)


def write_report(runs: Sequence[RunRecord], folder: Path, reference: str | None, title: str) -> Path:
    """Write plots, summary.json and the page, and return the page's path."""
    write_plots(runs, folder / "plots")
    write_summary(runs, folder, reference=reference)
    return write_page(runs, folder / "report.html", title=title, reference=reference)
