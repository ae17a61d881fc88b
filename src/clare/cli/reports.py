"""`clare show` and `clare report`."""

from pathlib import Path
from typing import Annotated

import typer

from clare.cli.console import console
from clare.cli.options import Runs
from clare.errors import RunError


def show(
    runs: Runs,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print LaTeX instead: means and deviations over seeds, for booktabs.")
    ] = False,
) -> None:
    """Print the tables of runs: accuracy after each task, and how runs differ."""
    from clare.report.groups import rank
    from clare.report.latex import to_latex
    from clare.report.record import find_runs
    from clare.report.standings import comparison_table, print_standings
    from clare.report.tables import task_table

    found = find_runs(runs)
    if latex:
        console.print(to_latex(found), end="", markup=False, highlight=False, soft_wrap=True)
        return
    for run in found:
        console.print(task_table(run))
    console.print(comparison_table(found))
    ranking = rank(found)
    # Methods with several seeds are shown as one too.
    if any(len(each.group.runs) > 1 for standings in ranking.values() for each in standings):
        print_standings(console, ranking, [])


def report(runs: Runs, out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")]) -> None:
    """Write one self-contained page about runs, its figures as PNG and SVG, and its numbers as JSON and Markdown."""
    from clare.report.groups import rank
    from clare.report.record import find_runs
    from clare.report.write import write_report
    from clare.runner.comparison import FILE

    if (out / FILE).exists():
        raise RunError(f"{out} belongs to a `clare compare`, whose page this would replace; choose another --out")
    found = find_runs(runs)
    page = write_report(found, out, "Continual learning report", rank(found))
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
