"""`clare train`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from clare.engine.ranks import is_first_rank
from clare.methods import METHODS
from clare.presets.load import check_acting, make_experiment
from clare.report.record import read_run
from clare.report.standings import comparison_table
from clare.report.tables import task_table
from clare.runner.jobs import run_with_bars
from clare.runner.loggers import check_loggers


def train_command(
    console: Console,
    preset: str,
    method: str | None,
    overrides: list[str],
    seed: int | None,
    out: Path | None,
    loggers: Sequence[str] = (),
    is_one_of_many: bool = False,
) -> None:
    """Run one method, hand its scalars to the loggers, and print its table."""
    check_loggers(loggers)
    if method is not None:
        METHODS.named(method)
    experiment = make_experiment(preset, method, overrides, seed)
    # Of several methods that were given one setting, one may have no use for it.
    if not is_one_of_many:
        check_acting([experiment])
    label = experiment.method_label
    folder = out or Path("runs") / experiment.name / f"{label}-{experiment.seed}"
    run_with_bars(console, experiment, folder, label, loggers)
    if is_first_rank():
        run = read_run(folder)
        console.print(task_table(run))
        console.print(comparison_table([run]))
        console.print(f"run folder: {folder}", soft_wrap=True, highlight=False)
