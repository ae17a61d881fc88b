"""`clare compare`: a matrix of methods and seeds, and what comes of it."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from clare.backbones.weights import check_reach
from clare.engine.ranks import is_first_rank
from clare.errors import SettingsError
from clare.files import write_json
from clare.methods import METHODS
from clare.presets.load import check_acting, overrides_for
from clare.report.groups import rank
from clare.report.record import read_run
from clare.report.standings import Failure, print_standings
from clare.report.tables import task_sheet, to_rich
from clare.report.write import FILE, describe_comparison, take_folder, write_report
from clare.runner.jobs import Job, check_processes, failures_of, run_jobs
from clare.runner.sweep import make_point, refusals_of


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
    labels = {METHODS.named(method).name for method in methods}
    points = [make_point(preset, method, overrides_for(method, methods, overrides), seeds, {}) for method in methods]
    # A method that refuses these settings fails alone if others take them.
    failures = refusals_of(points)
    experiments = [experiment for point in points for experiment in point.experiments]
    check_acting(experiments)
    # Once, and not in every run.
    check_reach(experiments[0].backbone)
    name = experiments[0].name
    comparison = describe_comparison(name, list(labels), overrides, list({each.seed for each in experiments}))
    default = Path("runs") / name
    root = take_folder(out, default, comparison)
    if is_first_rank():
        write_json(root / FILE, comparison)
        if root not in (out, default):
            console.print(f"{default} holds another comparison; this one is in {root}", soft_wrap=True, highlight=False)
    # A method that was named twice has one run.
    found = {f"{each.method_label}-{each.seed}" if len(seeds) > 1 else each.method_label: each for each in experiments}
    jobs = [Job(label, preset, experiment, root / label) for label, experiment in found.items()]
    reasons = run_jobs(
        console, jobs, num_processes, lambda job: console.print(to_rich(task_sheet(read_run(job.folder))))
    )
    failures += failures_of(jobs, reasons)
    runs = [read_run(job.folder) for job in jobs if job.label not in reasons]
    if runs and is_first_rank():
        ranking = rank(runs)
        print_standings(console, ranking, failures)
        page = write_report(runs, root, f"Methods compared on {name}", ranking, failures)
        console.print(f"report: {page}", soft_wrap=True, highlight=False)
    return failures


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
