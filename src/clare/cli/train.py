"""`clare train` and `clare compare`."""

import os
from pathlib import Path

from rich.console import Console

from clare.cli.progress import ProgressBars
from clare.cli.reports import write_report
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import SettingsError
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.report.record import read_run
from clare.report.tables import comparison_table, task_table


def train_command(
    console: Console, preset: str, method: str | None, overrides: list[str], seed: int | None, out: Path | None
) -> None:
    """Run one method and print its table."""
    experiment = make_experiment(preset, method, overrides, seed)
    folder = out or Path("runs") / experiment.name / f"{experiment.method_name}-{experiment.seed}"
    _run(console, experiment, folder)
    if _is_first_rank():
        run = read_run(folder)
        console.print(task_table(run))
        console.print(comparison_table([run]))
        console.print(f"run folder: {folder}", soft_wrap=True, highlight=False)


def compare_command(
    console: Console, preset: str, methods: list[str], overrides: list[str], seed: int | None, out: Path | None
) -> None:
    """Run every method, print the comparison, and write plots, summary and page."""
    if not methods:
        raise SettingsError("--methods is empty; name at least one method, see `clare methods`")
    experiments = [make_experiment(preset, method, overrides, seed) for method in methods]
    root = out or Path("runs") / experiments[0].name
    for experiment in experiments:
        folder = root / experiment.method_name
        _run(console, experiment, folder)
        if _is_first_rank():
            console.print(task_table(read_run(folder)))
    if _is_first_rank():
        runs = [read_run(root / method) for method in methods]
        console.print(comparison_table(runs, reference=methods[0]))
        page = write_report(runs, root, methods[0], f"Methods compared on {experiments[0].name}")
        console.print(f"report: {page}", soft_wrap=True, highlight=False)


def _run(console: Console, experiment: Experiment, folder: Path) -> None:
    """Run an experiment with progress bars on the first rank."""
    if not _is_first_rank():
        run_experiment(experiment, folder, Silence())
        return
    with ProgressBars(console, experiment.method_name) as bars:
        run_experiment(experiment, folder, bars)


def _is_first_rank() -> bool:
    """Tell whether this process speaks; Fabric and torchrun number the processes they start."""
    return os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("RANK", "0") == "0"
