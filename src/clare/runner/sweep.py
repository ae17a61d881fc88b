"""`clare sweep`: every listed value of every setting with every method and seed, on one machine or through Ray."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from clare.engine.ranks import is_first_rank
from clare.errors import SettingsError
from clare.methods import METHODS
from clare.metrics.summary import summarise
from clare.presets.load import check_acting, make_experiment, overrides_for, parse_override
from clare.presets.schema import Experiment, Job
from clare.report.record import read_run
from clare.report.standings import Failure
from clare.report.sweep import Sweep, SweepRow, short_key, sweep_sheet, write_sweep
from clare.report.tables import percent, to_rich
from clare.runner.jobs import check_processes, failures_of, num_processes_for, run_jobs
from clare.runner.ray_jobs import run_ray_jobs

MAX_RUNS = 10_000
MAX_NAME_LENGTH = 120
CLOSING = {"[": "]", "{": "}"}
QUOTES = ('"', "'")


class Axis(NamedTuple):
    """A setting and the words given for it, each as TOML would have it."""

    key: str
    words: tuple[str, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """What the words mean."""
        return tuple(value_of(self.key, word) for word in self.words)


@dataclass(frozen=True)
class Point:
    """One setting of the grid: a method, its values, and an experiment for each seed, or why it was refused."""

    method: str
    values: Mapping[str, Any]
    experiments: tuple[Experiment, ...]
    refusal: SettingsError | None = None

    @property
    def label(self) -> str:
        """The method and its values, fit for the name of a folder."""
        exact = "-".join([self.method, *(f"{short_key(key)}={compact(value)}" for key, value in self.values.items())])
        name = re.sub(r"[^A-Za-z0-9._=+-]+", "_", exact)
        if name == exact and len(name) <= MAX_NAME_LENGTH:
            return name
        # Two values that read the same once they are fit for a name still need a folder each.
        return f"{name[:MAX_NAME_LENGTH]}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


def compact(value: Any) -> str:
    """Return a value as folders are named by it: as people write it, without spaces between its parts."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)


def value_of(key: str, word: str) -> Any:
    """Return what a word means as a value of a setting."""
    return reduce(lambda values, part: values[part], key.split("."), parse_override(f"{key}={word}"))


def parse_axes(overrides: Sequence[str]) -> list[Axis]:
    """Read every `KEY=VALUE,VALUE` once."""
    if not overrides:
        raise SettingsError(
            "a sweep needs settings; list values as --set method.sparsity=0.9,0.95, or use `clare compare` for seeds"
        )
    axes: list[Axis] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key:
            raise SettingsError(
                f"--set got '{override}'; write it as key=value,value, such as method.sparsity=0.9,0.95"
            )
        if key == "seed":
            raise SettingsError(f"--set got '{override}'; seeds are given with --seeds 1993,1994")
        if key in (axis.key for axis in axes):
            raise SettingsError(f"--set names '{key}' twice; list all its values in one --set, separated by commas")
        axes.append(Axis(key, tuple(split_values(text, override))))
    return axes


def split_values(text: str, override: str) -> Iterator[str]:
    """Yield the values between commas; a comma inside a quoted text, a list or a table separates nothing."""
    word, expected = "", ""
    for character in f"{text},":
        is_at_start = not word.strip()
        if not expected and character == ",":
            if is_at_start:
                raise SettingsError(f"--set got '{override}', which has an empty value; write key=value,value")
            yield word.strip()
            word = ""
            continue
        # A double quote belongs to the text where an odd number of backslashes stands before it.
        is_escaped = character == '"' and (len(word) - len(word.rstrip("\\"))) % 2 == 1
        if expected and character == expected[-1] and not is_escaped:
            expected = expected[:-1]
        elif expected[-1:] not in QUOTES and (expected or is_at_start):
            expected += CLOSING.get(character, character if character in QUOTES else "")
        word += character
    if word:
        raise SettingsError(f"--set got '{override}', in which {expected[0]} is missing; close every list and quote")


def make_points(preset: str, methods: Sequence[str], axes: Sequence[Axis], seeds: Sequence[int | None]) -> list[Point]:
    """Resolve the whole grid; a value that no combination takes is refused at once, a lone combination is kept."""
    for name in methods:
        METHODS.named(name)
    names = list(methods) or [make_experiment(preset).method_name]
    num_runs = len(names) * len(seeds) * math.prod(len(axis.words) for axis in axes)
    if num_runs > MAX_RUNS:
        raise SettingsError(f"the grid has {num_runs} runs, more than {MAX_RUNS}; list fewer values")
    points = [point for name in names for point in _points_of(preset, name, names, axes, seeds)]
    _refuse_hopeless_values(points, axes)
    check_acting([point.experiments[0] for point in points if point.experiments])
    _refuse_repetitions(points)
    return points


def make_point(
    preset: str, method: str, overrides: Sequence[str], seeds: Sequence[int | None], values: Mapping[str, Any]
) -> Point:
    """Resolve a method with every seed, or note why it refuses these settings."""
    name = METHODS.get(method).name
    try:
        return Point(name, values, tuple(make_experiment(preset, method, overrides, seed) for seed in seeds))
    except SettingsError as error:
        return Point(name, values, (), error)


def refusals_of(points: Sequence[Point]) -> list[Failure]:
    """Return which points were refused; where all were, none is worth a run."""
    if points[0].refusal and all(point.refusal for point in points):
        raise points[0].refusal
    return [Failure(point.label, "", str(point.refusal)) for point in points if point.refusal]


def _points_of(
    preset: str, method: str, methods: Sequence[str], axes: Sequence[Axis], seeds: Sequence[int | None]
) -> Iterator[Point]:
    """Yield the grid of one method over the settings that it has, or that no other of the methods has either."""
    own = [axis for axis in axes if overrides_for(method, methods, [f"{axis.key}="])]
    for words in itertools.product(*(axis.words for axis in own)):
        overrides = [f"{axis.key}={word}" for axis, word in zip(own, words, strict=True)]
        values = {axis.key: value_of(axis.key, word) for axis, word in zip(own, words, strict=True)}
        yield make_point(preset, method, overrides, seeds, values)


def _refuse_hopeless_values(points: Sequence[Point], axes: Sequence[Axis]) -> None:
    """Stop before any time is spent on a grid with a value that is wrong wherever it stands."""
    refusals_of(points)
    for axis in axes:
        for value in map(compact, axis.values):
            using = [point for point in points if axis.key in point.values and compact(point.values[axis.key]) == value]
            refusals = [point.refusal for point in using if point.refusal]
            if refusals and len(refusals) == len(using):
                raise refusals[0]


def _refuse_repetitions(points: Sequence[Point]) -> None:
    """Refuse two points that would be the same run, which must not pass for two."""
    seen: dict[str, str] = {}
    for point in points:
        if not point.experiments:
            continue
        label = " ".join([point.method, *(f"{key}={compact(value)}" for key, value in point.values.items())])
        other = seen.setdefault(json.dumps(point.experiments[0].identity(), sort_keys=True), label)
        if other is not label:
            same = "is listed twice" if other == label else f"is the same as '{other}'"
            raise SettingsError(f"'{label}' {same}; a setting counts once, so leave one out")


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
