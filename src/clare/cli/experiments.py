"""The commands for experiments."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from clare.cli import options
from clare.cli.console import console, leave_if
from clare.errors import RunError, SettingsError

COLOURS = {"kept": "green", "broken": "red", "does not apply": "dim"}
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE,VALUE",
        help="Values of a setting, such as method.sparsity=0.9,0.95; repeatable, all are combined with all. "
        "A comma within a list or quotes separates nothing.",
    ),
]
JobsOrGpus = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; one for each GPU when left out, or one where there is none.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on the machines of a Ray cluster: HOST:PORT, ray://HOST:PORT, auto or local."
    ),
]


def train(
    preset: options.Preset,
    method: options.MethodName = None,
    backbone: options.Backbone = None,
    set_: options.Overrides = None,
    seed: options.Seed = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/PRESET/METHOD-SEED when left out.")] = None,
    skip_bad_images: options.SkipBad = False,
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
    from clare.report.tables import task_sheet, to_rich
    from clare.runner.jobs import run_with_bars
    from clare.runner.loggers import check_loggers

    loggers = [name for name, is_wanted in (("tensorboard", tensorboard), ("wandb", wandb)) if is_wanted]
    check_loggers(loggers)
    if method is not None:
        METHODS.named(method)
    overrides = options.overrides_of(set_, skip_bad_images)
    experiment = make_experiment(with_backbone(preset, backbone), method, overrides, seed)
    # Of several methods that were given one setting, one may have no use for it.
    if not one_of_many:
        check_acting([experiment])
    label = experiment.method_label
    folder = out or Path("runs") / experiment.name / f"{label}-{experiment.seed}"
    run_with_bars(console, experiment, folder, label, loggers)
    if is_first_rank():
        run = read_run(folder)
        console.print(to_rich(task_sheet(run)))
        console.print(comparison_table([run]))
        console.print(f"run folder: {folder}", soft_wrap=True, highlight=False)


def compare(
    preset: options.Preset,
    methods: options.Methods,
    backbone: options.Backbone = None,
    set_: options.Overrides = None,
    seed: options.Seed = None,
    seeds: options.Seeds = None,
    jobs: options.Jobs = 1,
    per_gpu: options.PerGpu = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for this comparison alone; one under runs/ when left out.")
    ] = None,
    skip_bad_images: options.SkipBad = False,
) -> None:
    """Run several methods over the same stream and compare them in tables, plots and one page."""
    from clare.presets.load import with_backbone
    from clare.runner.compare import compare_command, parse_seeds
    from clare.runner.jobs import num_at_a_time

    overrides, all_seeds = options.overrides_of(set_, skip_bad_images), parse_seeds(seeds, seed)
    layered = with_backbone(preset, backbone)
    count = num_at_a_time(jobs, per_gpu)
    failures = compare_command(console, layered, options.names_in(methods), overrides, all_seeds, out, count)
    leave_if([f"{failure.label} failed: {failure.reason}" for failure in failures])


def tune(
    preset: options.Preset,
    methods: options.Methods,
    trials: Annotated[int, typer.Option(min=1, help="Settings to try for each method.")] = 6,
    backbone: options.Backbone = None,
    set_: options.Overrides = None,
    seed: options.Seed = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Use only the classes of so many first tasks.")] = None,
    jobs: options.Jobs = 1,
    per_gpu: options.PerGpu = None,
    out: Annotated[Path | None, typer.Option(help="The folder for all trials; runs/PRESET-tune when left out.")] = None,
    skip_bad_images: options.SkipBad = False,
) -> None:
    """Choose settings on validation images, with equally many trials for every method, and write a tuned preset."""
    from clare.presets.load import with_backbone
    from clare.runner.jobs import num_at_a_time
    from clare.runner.tune import tune_command

    count = num_at_a_time(jobs, per_gpu)
    overrides, layered = options.overrides_of(set_, skip_bad_images), with_backbone(preset, backbone)
    leave_if(tune_command(console, layered, options.names_in(methods), trials, overrides, seed, tasks, out, count))


def check_method(
    method: Annotated[str, typer.Argument(help="A method's name (see `clare methods`), or path/to/file.py:Class.")],
) -> None:
    """Try every promise of the contract on a method, on a tiny stream and a tiny random backbone."""
    from clare.testing.check import check_method as verdicts_on

    num_promises = num_broken = 0
    for verdict in verdicts_on(method):
        num_promises += 1
        num_broken += verdict.outcome == "broken"
        line = Text.assemble((f"{verdict.outcome:<15}", COLOURS[verdict.outcome]), verdict.promise)
        console.print(line.append(f": {verdict.reason}") if verdict.reason else line, soft_wrap=True)
    if not num_broken:
        console.print("every promise is kept")
        return
    verb = "is" if num_broken == 1 else "are"
    console.print(f"{num_broken} of {num_promises} promises {verb} broken", highlight=False)
    raise typer.Exit(1)


def show(
    runs: options.Runs,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print LaTeX instead: means and deviations over seeds, for booktabs.")
    ] = False,
) -> None:
    """Print the tables of runs: accuracy after each task, and how runs differ."""
    from clare.report.groups import rank
    from clare.report.record import find_runs
    from clare.report.standings import comparison_table, print_standings, task_sheets, to_latex
    from clare.report.tables import task_sheet, to_rich

    found = find_runs(runs)
    if latex:
        console.print(to_latex(found), end="", markup=False, highlight=False, soft_wrap=True)
        return
    for run in found:
        console.print(to_rich(task_sheet(run)))
    console.print(comparison_table(found))
    ranking = rank(found)
    # Methods with several seeds are shown as one too.
    if any(len(each.group.runs) > 1 for standings in ranking.values() for each in standings):
        print_standings(console, ranking, [])
    elif len(found) > 1:
        console.print(*map(to_rich, task_sheets(ranking)))


def report(runs: options.Runs, out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")]) -> None:
    """Write one self-contained page about runs, its figures as PNG and SVG, and its numbers as JSON and Markdown."""
    from clare.report.groups import rank
    from clare.report.record import find_runs
    from clare.report.write import FILE, write_report

    if (out / FILE).exists():
        raise RunError(f"{out} belongs to a `clare compare`, whose page this would replace; choose another --out")
    found = find_runs(runs)
    page = write_report(found, out, "Continual learning report", rank(found))
    console.print(f"report: {page}", soft_wrap=True, highlight=False)


def sweep(
    preset: options.Preset,
    set_: Values = None,
    method: options.MethodName = None,
    methods: Annotated[str | None, typer.Option(help="Several methods, separated by commas.")] = None,
    seeds: options.Seeds = None,
    backbone: options.Backbone = None,
    jobs: JobsOrGpus = None,
    per_gpu: options.PerGpu = None,
    ray: Cluster = None,
    out: Annotated[Path | None, typer.Option(help="The folder for all runs; runs/PRESET-sweep when left out.")] = None,
    skip_bad_images: options.SkipBad = False,
) -> None:
    """Run every combination of listed settings with every seed, and rank them; the same command goes on."""
    from clare.presets.load import with_backbone
    from clare.runner.compare import parse_seeds
    from clare.runner.jobs import num_at_a_time
    from clare.runner.sweep import sweep_command

    if method is not None and methods is not None:
        raise SettingsError("--method and --methods were both given; name all methods with --methods")
    if ray is not None and (jobs or per_gpu):
        given = "--jobs" if jobs else "--per-gpu"
        raise SettingsError(
            f"--ray and {given} were both given; leave {given} out, Ray decides how many runs go at once"
        )
    failures = sweep_command(
        console,
        with_backbone(preset, backbone),
        options.names_in(methods) if methods is not None else [] if method is None else [method],
        options.overrides_of(set_, skip_bad_images) if set_ else [],
        parse_seeds(seeds, None),
        out,
        num_processes=num_at_a_time(jobs, per_gpu) if jobs or per_gpu else None,
        ray=ray,
    )
    leave_if([f"{failure.label} failed: {failure.reason}" for failure in failures])


def reproduce(
    experiment: Annotated[str, typer.Argument(help="table1 … table7, figure1 or efficiency.", show_default=False)],
    preset: Annotated[
        list[str] | None, typer.Option(help="Presets to use in place of the paper's, separated by commas; repeatable.")
    ] = None,
    backbone: options.Backbone = None,
    seeds: options.Seeds = None,
    jobs: options.Jobs = 1,
    out: Annotated[
        Path, typer.Option(help="Folder for the tables; the runs, which experiments share, are under runs/ in it.")
    ] = Path("runs/reproduce"),
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be run and how long, and stop.")] = False,
    set_: options.Overrides = None,
) -> None:
    """Repeat a table or figure of the paper, on its data or on others, and write it beside the paper's numbers."""
    from clare.runner.reproduction import reproduce_command, request_of

    request = request_of(experiment, preset, backbone, seeds, set_ or [], out, jobs)
    leave_if(reproduce_command(console, request, jobs, plan))
