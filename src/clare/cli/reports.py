"""`clare show` and `clare report`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from clare.report.compare import compare
from clare.report.groups import Standing, rank
from clare.report.latex import to_latex
from clare.report.page import write_page
from clare.report.plots import write_plots
from clare.report.record import RunRecord, find_runs
from clare.report.standings import Failure, costs_alone, standing_sheets, without_costs, write_comparison
from clare.report.summary import write_summary
from clare.report.tables import comparison_table, task_table, to_rich


def show_command(console: Console, paths: list[Path], latex: bool = False) -> None:
    """Print each run's table and the comparison of all, methods with several seeds as one, or the latter as LaTeX."""
    runs = find_runs(paths)
    if latex:
        console.print(to_latex(runs), end="", markup=False, highlight=False, soft_wrap=True)
        return
    for run in runs:
        console.print(task_table(run))
    console.print(comparison_table(runs))
    ranking = rank(runs)
    if any(len(each.group.runs) > 1 for standings in ranking.values() for each in standings):
        print_standings(console, ranking, [])


def print_standings(console: Console, ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure]) -> None:
    """Print the methods of each head; a terminal too narrow for all columns gets accuracies and costs apart."""
    for sheet in standing_sheets(ranking, failures):
        whole = to_rich(sheet)
        # Measured on a terminal of any width; on this one a table never needs more than there is.
        if console.measure(whole, options=console.options.update(max_width=1000)).maximum <= console.width:
            console.print(whole)
        else:
            console.print(to_rich(without_costs(sheet)), to_rich(costs_alone(sheet)))


def report_command(console: Console, paths: list[Path], out: Path) -> None:
    """Write page, figures, tables and summary of some runs."""
    runs = find_runs(paths)
    page = write_report(runs, out, None, "Continual learning report", rank(runs), [])
    console.print(f"report: {page}", soft_wrap=True, highlight=False)


def write_report(
    runs: Sequence[RunRecord],
    folder: Path,
    reference: str | None,
    title: str,
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure],
) -> Path:
    """Write plots, summary.json, comparison.md and the page, and return the page's path."""
    comparisons = compare(runs, reference)
    write_plots(runs, folder / "plots")
    write_summary(runs, folder, reference, ranking=ranking, failures=failures, comparisons=comparisons)
    write_comparison(ranking, failures, title, folder)
    return write_page(
        runs,
        folder / "report.html",
        title=title,
        reference=reference,
        ranking=ranking,
        failures=failures,
        comparisons=comparisons,
    )
