"""`clare train`."""

from pathlib import Path
from typing import Annotated

import typer

from clare.cli.console import console
from clare.cli.options import Backbone, Overrides, Preset, Seed, SkipBad, overrides_of


def train(
    preset: Preset,
    method: Annotated[
        str | None, typer.Option(help="A method's name (see `clare methods`), or path/to/file.py:Class.")
    ] = None,
    backbone: Backbone = None,
    set_: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/PRESET/METHOD-SEED when left out.")] = None,
    skip_bad_images: SkipBad = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write losses and accuracies for TensorBoard into the run's folder.")
    ] = False,
    wandb: Annotated[
        bool, typer.Option("--wandb", help="Send losses and accuracies to Weights & Biases; WANDB_MODE=offline keeps.")
    ] = False,
    one_of_many: Annotated[
        bool, typer.Option("--one-of-many", hidden=True, help="Take settings that act in another run of a command.")
    ] = False,
) -> None:
    """Run one method over a preset's stream; the same command goes on after an interruption."""
    from clare.engine.ranks import is_first_rank
    from clare.methods import METHODS
    from clare.presets.load import check_acting, make_experiment, with_backbone
    from clare.report.record import read_run
    from clare.report.standings import comparison_table
    from clare.report.tables import task_table
    from clare.runner.jobs import run_with_bars
    from clare.runner.loggers import check_loggers

    loggers = [name for name, is_wanted in (("tensorboard", tensorboard), ("wandb", wandb)) if is_wanted]
    check_loggers(loggers)
    if method is not None:
        METHODS.named(method)
    experiment = make_experiment(with_backbone(preset, backbone), method, overrides_of(set_, skip_bad_images), seed)
    # Of several methods that were given one setting, one may have no use for it.
    if not one_of_many:
        check_acting([experiment])
    label = experiment.method_label
    folder = out or Path("runs") / experiment.name / f"{label}-{experiment.seed}"
    run_with_bars(console, experiment, folder, label, loggers)
    if is_first_rank():
        run = read_run(folder)
        console.print(task_table(run))
        console.print(comparison_table([run]))
        console.print(f"run folder: {folder}", soft_wrap=True, highlight=False)
