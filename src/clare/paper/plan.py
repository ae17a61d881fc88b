"""Which runs an experiment needs, one for each row, preset and seed and each only once, and the plan as a table."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clare.errors import SettingsError
from clare.paper.estimate import Extent
from clare.paper.paper import Row, Study
from clare.presets.load import make_experiment, overrides_for, parse_override
from clare.presets.schema import Experiment
from clare.report.tables import Sheet, duration

Place = tuple[str, str]
"""A preset as the user gave it, and the key of a row."""

RunsOf = dict[Place, list["Run"]]


@dataclass(frozen=True)
class Run:
    """One run of an experiment and its folder, which its settings name."""

    label: str
    preset: str
    experiment: Experiment
    folder: Path


@dataclass(frozen=True)
class Request:
    """What the user asked for: an experiment, where, with which settings and seeds."""

    study: Study
    presets: tuple[str, ...]
    seeds: tuple[int | None, ...]
    overrides: tuple[str, ...]
    root: Path
    """Folder of all runs."""

    def base(self, preset: str) -> Experiment:
        """Return the experiment of the first row as far as the user's own words make it."""
        method = self.study.rows[0].method
        return make_experiment(preset, method, overrides_for(method, self.study.methods, self.overrides))


def make_request(
    study: Study, presets: Sequence[str], seeds: Sequence[int | None], overrides: Sequence[str], root: Path
) -> Request:
    """Fill in the experiment's own seeds, and refuse what it cannot be repeated with or makes itself."""
    if study.seeds:
        seeds = study.seeds if list(seeds) == [None] else seeds
        if len(seeds) < 2:
            raise SettingsError(
                f"{study.name} measures how results vary over seeds, and --seeds got {seeds[0]} alone; give at least "
                "two, such as 1993,1994,1995, or leave it out"
            )
    request = Request(study, tuple(dict.fromkeys(presets)), tuple(seeds), tuple(overrides), root)
    if request.seeds != (None,) and any("seed" in parse_override(override) for override in request.overrides):
        raise SettingsError(
            f"--set seed cannot be used here: every run has one of the seeds {', '.join(map(str, request.seeds))}; "
            "give them with --seeds"
        )
    bases = [request.base(preset) for preset in request.presets]
    for base in bases:
        if base.stream.evaluate_on != "test":
            raise SettingsError(
                f"`stream.evaluate_on` is {base.stream.evaluate_on} for {base.name}: figures are measured on test "
                "images, and choices are made on validation images; leave it out"
            )
    names = [base.name for base in bases]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SettingsError(f"two presets are named '{twice[0]}'; give one of the files another name")
    return request


def plan_runs(request: Request, extents: Mapping[str, Extent], chosen: Mapping[Place, str | None]) -> RunsOf:
    """Return the runs of every row, one for each seed; a row with choices has runs once one was chosen."""
    planned: RunsOf = {}
    for preset in request.presets:
        for row in request.study.rows:
            choice = chosen.get((preset, row.key))
            if not row.choices or choice is not None:
                planned[preset, row.key] = _runs(request, extents, preset, row, [choice] if choice else [])
    return planned


def plan_trials(request: Request, extents: Mapping[str, Extent]) -> dict[Place, dict[str, list[Run]]]:
    """Return the runs on validation images of every choice of the rows that have choices."""
    trials: dict[Place, dict[str, list[Run]]] = {}
    for preset in request.presets:
        for row in request.study.rows:
            for choice in row.choices:
                runs = _runs(request, extents, preset, row, [choice, "stream.evaluate_on=validation"])
                trials.setdefault((preset, row.key), {})[choice] = runs
    return trials


def unique(runs: Sequence[Run]) -> list[Run]:
    """Return each run once: rows with equal settings share one."""
    return list({run.folder: run for run in reversed(runs)}.values())[::-1]


def _runs(request: Request, extents: Mapping[str, Extent], preset: str, row: Row, extra: Sequence[str]) -> list[Run]:
    """Resolve a row's runs, one for each seed; its own settings lie over those of the user."""
    study, runs = request.study, []
    words = [*overrides_for(row.method, study.methods, request.overrides), *row.overrides, *extra]
    if study.all_at_once:
        stream = request.base(preset).stream
        words.append(f"stream.first={stream.num_classes or extents[preset].num_classes}")
    # Runs whose times are compared are made one at a time, so those of other experiments cannot serve.
    root = request.root / ("timed" if study.kind == "efficiency" else "runs")
    remarks = [word.partition("=")[2] if word in row.choices else "on validation images" for word in extra]
    for experiment in (make_experiment(preset, row.method, words, seed) for seed in request.seeds):
        folder = f"{experiment.method_label}-{experiment.seed}-{digest(experiment)}"
        label = ", ".join([experiment.name, row.label, *remarks, f"seed {experiment.seed}"])
        runs.append(Run(label, preset, experiment, root / experiment.name / folder))
    return runs


def digest(experiment: Experiment) -> str:
    """Return a short hash of all settings on which a run depends."""
    return hashlib.sha256(json.dumps(experiment.identity(), sort_keys=True).encode()).hexdigest()[:8]


Score = tuple[float, float]
"""Final and average accuracy on validation images."""


def choose(scores: Mapping[str, Score | None]) -> str | None:
    """Return the choice of the highest final accuracy, then average accuracy, then the first; none when all failed."""
    known = {choice: score for choice, score in scores.items() if score is not None}
    return max(known, key=known.__getitem__) if known else None


ScoreOf = Callable[[Run], Score | None]


def score_trials(trials: Mapping[str, Sequence[Run]], score_of: ScoreOf) -> dict[str, Score | None]:
    """Return the mean score of each choice over its seeds; a choice with a failed run has none."""
    scores: dict[str, Score | None] = {}
    for choice, runs in trials.items():
        known = [score for score in map(score_of, runs) if score is not None]
        final, average = (sum(each) / len(runs) for each in zip(*known, strict=True)) if known else (0.0, 0.0)
        scores[choice] = (final, average) if len(known) == len(runs) else None
    return scores


AFTER = "after the choice"
ORIGIN = (
    "Times are measured: two tiny tasks of noise on the true backbone and image size, two short epochs of each phase, "
    "the second epoch scaled to the images and epochs of the stream, the second task standing for all later ones; a "
    "method's rows are taken to cost alike, and where a run of the same method and preset is finished, its time "
    "counts. Reading the images is not included, and a method whose training slows down from task to task takes longer."
)

Seconds = Mapping[Path, float | None]
"""Estimated seconds of the runs that are not done; none where nothing could be measured."""


@dataclass(frozen=True)
class Entry:
    """The runs of one row on one preset, and what they are for."""

    place: Place
    remark: str
    runs: Sequence[Run]


def plan_sheet(request: Request, entries: Sequence[Entry], done: set[Path], seconds: Seconds) -> Sheet:
    """One line for each row and preset; a run that several rows share counts in the first."""
    rows, counted = [], set[Path]()
    for entry in entries:
        preset, key = entry.place
        own = [run for run in unique(list(entry.runs)) if run.folder not in counted]
        counted |= {run.folder for run in own}
        num_done = sum(run.folder in done for run in own)
        label = request.study.row(key).label + (f" ({entry.remark})" if entry.remark else "")
        shared = "shared" if not own else str(len(own))
        rows.append((label, preset, shared, str(num_done), _time(own, done, seconds)))
    title = f"{request.study.name}: {request.study.title}"
    return Sheet(title, ("Row", "Preset", "Runs", "Done", "Time left"), tuple(rows))


def _time(runs: Sequence[Run], done: set[Path], seconds: Seconds) -> str:
    """The time that these runs still take."""
    left = [seconds.get(run.folder) for run in runs if run.folder not in done]
    known = [value for value in left if value is not None]
    if len(known) < len(left):
        return "unknown"
    return duration(sum(known)) if left else "-"


def plan_words(entries: Sequence[Entry], done: set[Path], seconds: Seconds, num_processes: int) -> str:
    """Say how many runs are left, how long they take together, and how that is known."""
    runs = unique([run for entry in entries for run in entry.runs])
    left = [run for run in runs if run.folder not in done]
    if not left:
        return f"all {len(runs)} runs are done"
    known = [value for value in (seconds.get(run.folder) for run in left) if value is not None]
    unknown = f", and {len(left) - len(known)} for which nothing could be measured" if len(known) < len(left) else ""
    together = f"about {duration(sum(known))} one at a time{unknown}" if known else "for an unknown time"
    several = ""
    if num_processes > 1 and known:
        several = f"; {num_processes} at a time take at best {duration(sum(known) / num_processes)}"
    return f"{len(left)} of {len(runs)} runs are left, {together}{several}. {ORIGIN}"
