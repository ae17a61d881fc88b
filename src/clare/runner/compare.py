"""`clare compare`: a matrix of methods and seeds, and what comes of it."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from clare.backbones.weights import check_reach
from clare.engine.ranks import is_first_rank
from clare.errors import SettingsError
from clare.methods import METHODS
from clare.presets.load import check_acting, make_experiment, overrides_for
from clare.presets.schema import Experiment
from clare.report.groups import rank
from clare.report.record import read_run
from clare.report.standings import Failure, print_standings
from clare.report.tables import task_table
from clare.report.write import write_report
from clare.runner.comparison import describe_comparison, note_comparison, take_folder
from clare.runner.jobs import Job, run_jobs


def compare_command(
    console: Console,
    preset: str,
    methods: list[str],
    overrides: list[str],
    seeds: Sequence[int | None],
    out: Path | None,
    num_processes: int,
) -> list[Failure]:
    """Make all runs, print the comparison, write plots, tables and page, and return what failed."""
    check_processes(num_processes)
    experiments, failures = plan(preset, methods, overrides, seeds)
    # Once, and not in every run.
    check_reach(experiments[0].backbone)
    root = _take_folder(console, experiments, methods, overrides, out)
    jobs = make_jobs(preset, experiments, root, len(seeds) > 1)

    def done(job: Job) -> None:
        if is_first_rank() and num_processes == 1:
            console.print(task_table(read_run(job.folder)))

    reasons = run_jobs(console, jobs, num_processes, done)
    failures += [
        Failure(job.label, job.experiment.head_label, reasons[job.label]) for job in jobs if job.label in reasons
    ]
    runs = [read_run(job.folder) for job in jobs if job.label not in reasons]
    if runs and is_first_rank():
        ranking = rank(runs)
        print_standings(console, ranking, failures)
        page = write_report(runs, root, f"Methods compared on {experiments[0].name}", ranking, failures)
        console.print(f"report: {page}", soft_wrap=True, highlight=False)
    return failures


def _take_folder(
    console: Console,
    experiments: Sequence[Experiment],
    methods: Sequence[str],
    overrides: Sequence[str],
    out: Path | None,
) -> Path:
    """Find the folder of this comparison and note that it is its own."""
    labels = {METHODS.get(method).name for method in methods}
    seeds = {experiment.seed for experiment in experiments}
    comparison = describe_comparison(experiments[0].name, list(labels), overrides, list(seeds))
    default = Path("runs") / experiments[0].name
    root = take_folder(out, default, comparison)
    if is_first_rank():
        note_comparison(root, comparison)
        if root not in (out, default):
            console.print(f"{default} holds another comparison; this one is in {root}", soft_wrap=True, highlight=False)
    return root


def plan(
    preset: str, methods: list[str], overrides: list[str], seeds: Sequence[int | None]
) -> tuple[list[Experiment], list[Failure]]:
    """Resolve every method with every seed; a method that refuses these settings fails alone if others take them."""
    if not methods:
        raise SettingsError("--methods is empty; name at least one method, see `clare methods`")
    experiments: list[Experiment] = []
    refusals: list[tuple[str, SettingsError]] = []
    for method, kind in {name: METHODS.named(name) for name in methods}.items():
        try:
            own = overrides_for(method, methods, overrides)
            experiments += [make_experiment(preset, method, own, seed) for seed in seeds]
        except SettingsError as error:
            refusals.append((kind.name, error))
    if not experiments:
        raise refusals[0][1]
    check_acting(experiments)
    return experiments, [Failure(label, "", str(error)) for label, error in refusals]


def make_jobs(preset: str, experiments: Sequence[Experiment], root: Path, by_seed: bool) -> list[Job]:
    """Give each run its folder; a method that was named twice has one."""
    jobs: dict[str, Job] = {}
    for experiment in experiments:
        label = f"{experiment.method_label}-{experiment.seed}" if by_seed else experiment.method_label
        jobs[label] = Job(label, preset, experiment, root / label)
    return list(jobs.values())


def check_processes(num_processes: int) -> None:
    """Refuse to start processes from within one of several ranks."""
    if num_processes > 1 and "LOCAL_RANK" in os.environ:
        raise SettingsError(
            f"--jobs {num_processes} starts processes of its own; leave it out or start without torchrun"
        )


def parse_seeds(text: str | None, seed: int | None) -> list[int | None]:
    """Read `--seeds 1,2,3`; without it the one seed of `--seed`, or the preset's."""
    if text is None:
        return [seed]
    if seed is not None:
        raise SettingsError("--seed and --seeds were both given; give all seeds with --seeds")
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise SettingsError(f"--seeds got '{text}', which holds no seed; write them as 1993,1994,1995")
    seeds: list[int | None] = []
    for word in words:
        if not word.lstrip("-").isdecimal():
            raise SettingsError(f"--seeds got '{word}', which is no whole number; write them as 1993,1994,1995")
        if int(word) in seeds:
            raise SettingsError(f"--seeds names {word} twice; a seed counts once, so leave one out")
        seeds.append(int(word))
    return seeds
