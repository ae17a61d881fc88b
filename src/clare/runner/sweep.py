"""`clare sweep`: a grid of settings, run on one machine or through Ray, and what comes of it."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from clare.engine.ranks import is_first_rank
from clare.metrics.summary import summarise
from clare.report.record import read_run
from clare.report.standings import Failure
from clare.report.sweep import Sweep, SweepRow, sweep_sheet, write_sweep
from clare.report.tables import percent, to_rich
from clare.runner.grid import make_points, parse_axes, refusals_of
from clare.runner.jobs import Job, check_processes, failures_of, num_processes_for, run_jobs
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
    jobs_of: dict[str, list[Job]] = {point.label: [] for point in points}
    for point in points:
        for label, each in ((f"{point.label}-seed={each.seed}", each) for each in point.experiments):
            jobs_of[point.label].append(Job(label, preset, each, root / label))
    jobs = [job for own in jobs_of.values() for job in own]
    if ray is not None:
        reasons = run_ray_jobs(console, jobs, ray, root)
    else:
        count = num_processes or num_processes_for(experiments)
        check_processes(count)
        reasons = run_jobs(console, jobs, count, lambda job: _tell(console, job))
    failures = refusals_of(points) + failures_of(jobs, reasons)
    if is_first_rank():
        rows = []
        for point in points:
            runs = tuple(read_run(job.folder) for job in jobs_of[point.label] if job.label not in reasons)
            rows.append(SweepRow(point.method, runs, point.values, len(seeds)))
        # A choice among settings must not be made on test images, so the title says which were asked.
        images = " and ".join(sorted({experiment.stream.evaluate_on for experiment in experiments}))
        title = f"Settings compared on the {images} images of {experiments[0].name}"
        swept = {axis.key: axis.values for axis in axes if len(axis.words) > 1}
        sweep = Sweep(title, swept, tuple(rows), tuple(failures))
        console.print(to_rich(sweep_sheet(sweep)))
        finished = [run for row in rows for run in row.runs]
        # The first point that was not refused has an experiment for each seed.
        seeded = next(point.experiments for point in points if point.experiments)
        facts = {"preset": preset, "overrides": list(overrides), "seeds": [each.seed for each in seeded]}
        environment = dict(finished[0].environment) if finished else None
        paths = write_sweep(sweep, {**facts, "environment": environment}, root)
        console.print(f"results: {', '.join(map(str, paths))}", soft_wrap=True, highlight=False)
    return failures


def _tell(console: Console, job: Job) -> None:
    """Say what a run reached."""
    final = percent(summarise(read_run(job.folder))["final_accuracy"])
    console.print(f"{job.label}: final accuracy {final} %", highlight=False, soft_wrap=True)
