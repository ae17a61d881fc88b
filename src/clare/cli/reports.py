"""`clare show` and `clare report`."""

from pathlib import Path

from rich.console import Console

from clare.errors import RunError
from clare.report.groups import rank
from clare.report.latex import to_latex
from clare.report.record import find_runs
from clare.report.standings import comparison_table, print_standings
from clare.report.tables import task_table
from clare.runner.comparison import FILE as COMPARISON


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


def report_command(console: Console, paths: list[Path], out: Path) -> None:
    """Write page, figures, tables and summary of some runs."""
    # It brings matplotlib, which tables do without.
    from clare.report.write import write_report

    if (out / COMPARISON).exists():
        raise RunError(f"{out} belongs to a `clare compare`, whose page this would replace; choose another --out")
    runs = find_runs(paths)
    page = write_report(runs, out, "Continual learning report", rank(runs))
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
