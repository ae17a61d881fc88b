"""`clare sweep`: a grid of settings, run on one machine or through Ray, and what comes of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from clare.engine.ranks import is_first_rank
from clare.metrics.summary import summarise
from clare.presets.schema import Experiment
from clare.report.record import read_run
from clare.report.standings import Failure
from clare.report.sweep import Sweep, SweepRow, sweep_sheet, write_sweep
from clare.report.tables import percent, to_rich
from clare.runner.compare import check_processes
from clare.runner.grid import Point, make_points, parse_axes
from clare.runner.jobs import Job, Reasons, failures_of, num_processes_for, run_jobs
from clare.runner.ray_jobs import run_ray_jobs


def sweep_command(
    console: Console,
    preset: str,
    methods: Sequence[str],
    overrides: Sequence[str],
    seeds: Sequence[int | None],
    out: Path | None,
    num_processes: int | None,
    ray: str | None,
) -> list[Failure]:
    """Make all runs of a grid, print and write the ranked settings, and return what failed."""
    axes = parse_axes(overrides)
    points = make_points(preset, methods, axes, seeds)
    experiments = [experiment for point in points for experiment in point.experiments]
    root = out or Path("runs") / f"{experiments[0].name}-sweep"
    jobs_of = {point.label: _jobs(preset, point, root) for point in points}
    jobs = [job for own in jobs_of.values() for job in own]
    if ray is None:
        reasons = _run_here(console, jobs, num_processes or num_processes_for(experiments))
    else:
        reasons = run_ray_jobs(console, jobs, ray, root)
    failures = [Failure(point.label, "", str(point.refusal)) for point in points if point.refusal]
    failures += failures_of(jobs, reasons)
    if is_first_rank():
        rows = tuple(_row(point, jobs_of[point.label], reasons, len(seeds)) for point in points)
        swept = {axis.key: axis.values for axis in axes if len(axis.words) > 1}
        sweep = Sweep(_title(experiments), swept, rows, tuple(failures))
        facts = {"preset": preset, "overrides": list(overrides), "seeds": [each.seed for each in _seeded(points)]}
        _tell(console, sweep, facts, root)
    return failures


def _run_here(console: Console, jobs: Sequence[Job], num_processes: int) -> Reasons:
    """Make the runs on this machine; one at a time, each says what it reached."""
    check_processes(num_processes)

    def done(job: Job) -> None:
        if is_first_rank() and num_processes == 1:
            final = percent(summarise(read_run(job.folder))["final_accuracy"])
            console.print(f"{job.label}: final accuracy {final} %", highlight=False, soft_wrap=True)

    return run_jobs(console, jobs, num_processes, done)


def _jobs(preset: str, point: Point, root: Path) -> list[Job]:
    """Give each seed of a point its folder."""
    labels = {f"{point.label}-seed={experiment.seed}": experiment for experiment in point.experiments}
    return [Job(label, preset, experiment, root / label) for label, experiment in labels.items()]


def _seeded(points: Sequence[Point]) -> Sequence[Experiment]:
    """Return the experiments of the first point that was not refused: one for each seed."""
    return next(point.experiments for point in points if point.experiments)


def _title(experiments: Sequence[Experiment]) -> str:
    """Name the stream and, since a choice among settings must not be made on test images, which images were asked."""
    images = " and ".join(sorted({experiment.stream.evaluate_on for experiment in experiments}))
    return f"Settings compared on the {images} images of {experiments[0].name}"


def _row(point: Point, jobs: Sequence[Job], reasons: Reasons, num_seeds: int) -> SweepRow:
    """Read what the runs of a point reached."""
    runs = tuple(read_run(job.folder) for job in jobs if job.label not in reasons)
    return SweepRow(point.method, runs, point.values, num_seeds)


def _tell(console: Console, sweep: Sweep, facts: dict[str, Any], root: Path) -> None:
    """Print the ranked settings, write them to the folder, and say where they are."""
    console.print(to_rich(sweep_sheet(sweep)))
    finished = [run for row in sweep.rows for run in row.runs]
    environment = dict(finished[0].environment) if finished else None
    paths = write_sweep(sweep, {**facts, "environment": environment}, root)
    console.print(f"results: {', '.join(map(str, paths))}", soft_wrap=True, highlight=False)
