"""`clare reproduce`: plan an experiment of the paper, make its runs, and write its table."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from clare.engine.ranks import is_first_rank
from clare.errors import SettingsError
from clare.metrics.summary import summarise
from clare.paper import efficiency, figure1
from clare.paper.estimate import Estimator, Extent, count_all
from clare.paper.latency import measure_latencies
from clare.paper.paper import Published, find_study, read_paper
from clare.paper.plan import (
    AFTER,
    Entry,
    Place,
    Request,
    Run,
    RunsOf,
    Score,
    choose,
    make_request,
    plan_runs,
    plan_sheet,
    plan_trials,
    plan_words,
    score_trials,
    unique,
)
from clare.paper.results import Choice, Results, make_cell, make_setting
from clare.paper.tables import conditions, failures, sheets, write_results
from clare.presets.load import with_backbone
from clare.report.record import read_run
from clare.report.tables import Sheet, to_markdown, to_rich
from clare.runner.compare import parse_seeds
from clare.runner.jobs import Job, check_processes, run_jobs

Reasons = Mapping[Path, str]
"""Why runs failed, by their folders."""


def reproduce_command(console: Console, request: Request, num_processes: int, only_plan: bool) -> list[str]:
    """Plan, run and write an experiment, and return what failed."""
    bases = {preset: request.base(preset) for preset in request.presets}
    extents, remarks = count_all(bases, expects=only_plan)
    trials = plan_trials(request, extents)
    show_plan(console, request, extents, trials, num_processes, Estimator(needs_weights=not only_plan))
    if only_plan:
        for remark in remarks:
            console.print(remark, soft_wrap=True, highlight=False)
        return []
    choices, reasons = run_trials(console, trials, num_processes)
    planned = plan_runs(request, extents, {place: choice.chosen for place, choice in choices.items()})
    reasons |= run_all(console, [run for runs in planned.values() for run in runs], num_processes)
    if not is_first_rank():
        return []
    results = collect(request, planned, choices, reasons)
    extra, more = _extras(console, results)
    for sheet in (*sheets(results), *extra):
        console.print(to_rich(sheet))
    for line in conditions(results):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    pictures = figure1.write_figures(results, request.root) if results.study.kind == "figure" else []
    said = figure1.sentences(results) if results.study.kind == "figure" else []
    parts = [*(to_markdown(sheet).rstrip() for sheet in extra), *pictures, *said]
    page = write_results(results, request.root, parts, more)
    console.print(f"table: {page}", soft_wrap=True, highlight=False)
    return failures(results)


def request_of(
    experiment: str,
    presets: Sequence[str] | None,
    backbone: str | None,
    seeds: str | None,
    overrides: Sequence[str],
    out: Path,
    num_processes: int,
) -> Request:
    """Resolve what the user typed."""
    check_processes(num_processes)
    study = find_study(experiment)
    if study.kind == "efficiency" and num_processes > 1:
        raise SettingsError(
            f"{study.name} compares times, which runs side by side would spoil, and --jobs got {num_processes}; "
            "leave it out"
        )
    if out.exists() and not out.is_dir():
        raise SettingsError(f"--out got {out}, which is a file and cannot hold tables and runs; choose a folder")
    given = [name.strip() for word in presets or () for name in word.split(",") if name.strip()]
    if presets and not given:
        raise SettingsError(f"--preset got '{presets[0]}', which names no preset; leave it out for the paper's own")
    layered = [with_backbone(name, backbone) for name in given or study.presets]
    return make_request(study, layered, parse_seeds(seeds, None), overrides, out)


def show_plan(
    console: Console,
    request: Request,
    extents: Mapping[str, Extent],
    trials: Mapping[Place, Mapping[str, Sequence[Run]]],
    num_processes: int,
    estimator: Estimator,
) -> None:
    """Say which runs there are, which are done, and how long the others will take on this device."""
    # What is chosen is known once all trials are done.
    settled = {
        place: choose(score_trials(by_choice, score_of))
        if all(as_job(run).is_done for runs in by_choice.values() for run in runs)
        else None
        for place, by_choice in trials.items()
    }
    # A run whose settings are yet to be chosen is planned with the first of the choices.
    guesses = {place: settled[place] or next(iter(by_choice)) for place, by_choice in trials.items()}
    planned = plan_runs(request, extents, guesses)
    entries = [
        Entry(place, "to choose", [run for runs in by_choice.values() for run in runs])
        for place, by_choice in trials.items()
    ]
    entries += [Entry(place, "" if settled.get(place, "") is not None else AFTER, planned[place]) for place in planned]
    done = {run.folder for entry in entries for run in entry.runs if as_job(run).is_done and entry.remark != AFTER}
    if not is_first_rank():
        return
    with console.status("measuring a few steps of each method on this device"):
        seconds = _estimates(entries, extents, done, estimator)
    console.print(to_rich(plan_sheet(request, entries, done, seconds)))
    console.print(plan_words(entries, done, seconds, num_processes), soft_wrap=True, highlight=False)


def score_of(run: Run) -> Score:
    """Return what a finished run reached on validation images."""
    figures = summarise(read_run(run.folder))
    return figures["final_accuracy"] or 0.0, figures["average_accuracy"] or 0.0


def _estimates(
    entries: Sequence[Entry], extents: Mapping[str, Extent], done: set[Path], estimator: Estimator
) -> dict[Path, float | None]:
    """Estimate every run that is not done: as long as a finished one of its method and preset took, or by measuring."""
    runs = unique([run for entry in entries for run in entry.runs])
    finished = [run for run in runs if run.folder in done]
    known = {(run.preset, run.experiment.method_name): summarise(read_run(run.folder))["seconds"] for run in finished}
    seconds: dict[Path, float | None] = {}
    for run in (run for run in runs if run.folder not in done):
        seconds[run.folder] = known.get((run.preset, run.experiment.method_name))
        # Several ranks cannot measure what one of them does alone.
        if seconds[run.folder] is None and "LOCAL_RANK" not in os.environ:
            seconds[run.folder] = estimator.seconds(run.experiment, extents[run.preset])
    return seconds


def as_job(run: Run) -> Job:
    """Return a run as the machinery of commands knows it."""
    return Job(run.label, run.preset, run.experiment, run.folder)


def run_all(console: Console, runs: Sequence[Run], num_processes: int) -> dict[Path, str]:
    """Make all runs that are not done, each once, and return why some failed."""
    jobs = [as_job(run) for run in unique(runs)]
    reasons = run_jobs(console, jobs, num_processes)
    return {job.folder: reasons[job.label] for job in jobs if job.label in reasons}


def run_trials(
    console: Console, trials: Mapping[Place, Mapping[str, Sequence[Run]]], num_processes: int
) -> tuple[dict[Place, Choice], dict[Path, str]]:
    """Make the runs on validation images, and choose for each row what was best there."""
    runs = [run for by_choice in trials.values() for same in by_choice.values() for run in same]
    reasons = run_all(console, runs, num_processes) if runs else {}
    choices: dict[Place, Choice] = {}
    for place, by_choice in trials.items():
        scores = score_trials(by_choice, lambda run: None if run.folder in reasons else score_of(run))
        choices[place] = Choice(choose(scores), scores)
    return choices, reasons


def collect(request: Request, planned: RunsOf, choices: Mapping[Place, Choice], reasons: Reasons) -> Results:
    """Read all runs and put them into cells."""
    paper, study = read_paper(), request.study
    settings = tuple(make_setting(paper, study, preset, planned[preset, study.reference]) for preset in request.presets)
    cells = {}
    for setting in settings:
        for row in study.rows:
            place = (setting.preset, row.key)
            runs = planned.get(place, [])
            why = [reasons[run.folder] for run in runs if run.folder in reasons]
            if not runs:
                why = ["none of its choices could be run on validation images"]
            records = [read_run(run.folder) for run in runs if run.folder not in reasons]
            published = paper.cells(study.name, setting.stream or "").get(row.key, Published())
            cells[place] = make_cell(row, setting.preset, records, why, published, choices.get(place))
    seeds = dict.fromkeys(run.experiment.seed for runs in planned.values() for run in runs)
    return Results(study, paper, settings, cells, request.overrides, tuple(seeds))


def _extras(console: Console, results: Results) -> tuple[list[Sheet], dict[str, Any]]:
    """Return the further tables and figures of experiments that are more than accuracies."""
    if results.study.kind == "figure":
        return [], figure1.as_values(results)
    if results.study.kind != "efficiency":
        return [], {}
    latencies = {}
    for setting in results.settings:
        cells = [cell for cell in results.rows(setting.preset) if not cell.failed]
        # The plain adapter is shaped like the reference's.
        if cells and cells[0].row.key == results.study.reference:
            models = {cell.row.label: cell.records[0].folder / "model" for cell in cells}
            with console.status("measuring latencies"):
                latencies[setting.preset] = measure_latencies(setting.experiment, models)
    return efficiency.efficiency_sheets(results, latencies), efficiency.as_values(latencies)
