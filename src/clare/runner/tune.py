"""`clare tune`: the same number of trials for every method, on validation images alone, towards the best so far."""

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from clare.data.stream import StreamSettings, task_sizes
from clare.engine.ranks import is_first_rank
from clare.errors import SettingsError, nearest
from clare.files import write_json, write_text
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.protocols import FACTORS, Tunable
from clare.metrics.summary import summarise
from clare.presets.layers import table_lines
from clare.presets.load import layers_of, make_experiment, parse_override
from clare.presets.schema import Experiment, Job
from clare.report.record import RunRecord, read_run
from clare.report.tables import Sheet, is_number, percent, to_rich
from clare.runner.jobs import check_processes, run_jobs
from clare.seeds import derive_seed

FIRST_ROUND, ROUND = 3, 2
"""Trials before the first look at results, and between later looks: a value and its neighbours, then two more."""

Point = tuple[Any, ...]
"""A value for each setting that is tuned."""
Score = tuple[float, float]
"""What the best trial has most of."""


@dataclass(frozen=True)
class Trial:
    """Some settings of a method, under dotted keys, and their experiment; once made, its run or why it failed."""

    settings: dict[str, Any]
    experiment: Experiment
    run: RunRecord | None = None
    error: str | None = None

    @property
    def point(self) -> Point:
        """The values alone."""
        return tuple(self.settings.values())

    @property
    def label(self) -> str:
        """The method and its settings, fit for the name of a folder."""
        words = [f"{key}={value}" for key, value in self.settings.items()]
        return "-".join([self.experiment.method_label, *words]).replace("/", "_")

    @cached_property
    def figures(self) -> dict[str, Any]:
        """What it reached on the validation images."""
        return {} if self.run is None else dict(summarise(self.run))

    @property
    def score(self) -> Score:
        """What the best trial has most of."""
        final, average = (self.figures.get(name) for name in ("final_accuracy", "average_accuracy"))
        return (-math.inf, -math.inf) if final is None or average is None else (final, average)

    def as_json(self) -> dict[str, Any]:
        """Settings and scores."""
        entry = {"method": self.experiment.method_name, "settings": self.settings}
        if self.error:
            return {**entry, "error": self.error}
        scores = {name: self.figures[name] for name in ("average_accuracy", "final_accuracy")}
        return {**entry, **scores, "seconds": round(self.figures["seconds"], 1)}


@dataclass(frozen=True)
class Grid:
    """All settings that can be tried for a method: values for each dotted key, and in which order ties are broken."""

    preset: str
    method: str
    overrides: tuple[str, ...]
    seed: int | None
    axes: dict[str, list[Any]]
    start: Point
    points: list[Point]

    def distance(self, one: Point, other: Point) -> int:
        """Return the most steps between two points on any axis; between words it is one step."""
        steps = [
            abs(values.index(here) - values.index(there)) if is_number(here) else int(here != there)
            for values, here, there in zip(self.axes.values(), one, other, strict=True)
        ]
        return max(steps, default=0)

    def trials(self, points: Iterable[Point]) -> Iterator[Trial]:
        """Yield the trials at these points, but for those that the method refuses."""
        for point in points:
            settings = dict(zip(self.axes, point, strict=True))
            words = [
                f"method.{key}={str(value).lower() if isinstance(value, bool) else value}"
                for key, value in settings.items()
            ]
            with suppress(SettingsError):
                yield Trial(settings, make_experiment(self.preset, self.method, [*self.overrides, *words], self.seed))


def make_grid(preset: str, method: str, overrides: Sequence[str], seed: int | None) -> Grid:
    """Return the grid around the preset's own settings; ties are broken by chance, the same for the same seed."""
    experiment = make_experiment(preset, method, overrides, seed)
    kind = METHODS.get(method)
    starts = {key: _value_at(kind, experiment, key) for key in tunable_of(kind)}
    axes = {key: values_of(starts[key], listed, key) for key, listed in tunable_of(kind).items()}
    points = list(itertools.product(*axes.values()))
    random = np.random.RandomState(derive_seed(experiment.seed, kind.name, "trials") % 2**32)
    shuffled = [points[place] for place in random.permutation(len(points))]
    return Grid(preset, method, tuple(overrides), seed, axes, tuple(starts.values()), shuffled)


def round_sizes(num_trials: int) -> Iterator[int]:
    """Yield how many trials are made before their results are looked at; fewer trials begin as more do."""
    size = FIRST_ROUND
    while num_trials > 0:
        yield min(size, num_trials)
        num_trials, size = num_trials - size, ROUND


def next_trials(grid: Grid, scores: Mapping[Point, Score], num: int) -> list[Trial]:
    """Return the settings not tried yet that are nearest to the best so far, at first to the preset's own."""
    best = max(scores, key=lambda point: scores[point]) if scores else grid.start
    untried = sorted(
        (point for point in grid.points if point not in scores), key=lambda point: grid.distance(point, best)
    )
    return list(itertools.islice(grid.trials(untried), num))


def edge_of(value: Any, tried: Sequence[Any]) -> str:
    """Say where a number is the last on its side of those that were tried, so that one beyond might be better still."""
    if not is_number(value) or len(set(tried)) < 2:
        return ""
    return {max(tried): "highest tried", min(tried): "lowest tried"}.get(value, "")


def values_of(start: Any, listed: Sequence[Any], key: str) -> list[Any]:
    """Return the preset's value and the others to try: numbers are factors on it, in order; all else is a value."""
    if not is_number(start):
        return [start, *(value for value in listed if value != start)]
    if not all(isinstance(value, int | float) and value > 0 for value in listed):
        raise SettingsError(f"`tunable` lists {listed} for the number '{key}'; list factors above 0")
    near = [round(start * factor) if isinstance(start, int) else float(f"{start * factor:.6g}") for factor in listed]
    return sorted({start, *near})


def tunable_of(kind: type[Method]) -> dict[str, tuple[Any, ...]]:
    """Return what is to be tried of a method; one without a learning rate that lists nothing has nothing to try."""
    if issubclass(kind, Tunable):
        return kind.tunable
    return {"learning_rate": FACTORS} if "learning_rate" in kind.settings_type.model_fields else {}


def _value_at(kind: type[Method], experiment: Experiment, key: str) -> Any:
    """Return the value of a method's setting by its dotted key."""
    try:
        return reduce(lambda values, part: values[part], key.split("."), experiment.method)
    except (KeyError, TypeError):
        known = nearest(key, kind.settings_type.model_fields)
        raise SettingsError(
            f"the method '{kind.name}' lists '{key}' in `tunable`, but has no such setting{known}"
        ) from None


def tune_command(
    console: Console,
    preset: str,
    methods: list[str],
    num_trials: int,
    overrides: list[str],
    seed: int | None,
    num_tasks: int | None,
    out: Path | None,
    num_processes: int,
) -> list[str]:
    """Run all trials, write `tune.json` and a preset with the best settings, and return which methods have none."""
    check_processes(num_processes)
    for method in methods:
        METHODS.named(method)
    words = validation_overrides(preset, methods[0], overrides, num_tasks)
    grids = {method: make_grid(preset, method, words, seed) for method in methods}
    name = make_experiment(preset, methods[0], words, seed).name
    root = out or Path("runs") / f"{name}-tune"
    results = _search(console, preset, grids, num_trials, root, num_processes)
    if not is_first_rank():
        return []
    best = {
        method: max(found, key=lambda trial: trial.score)
        for method, found in results.items()
        if any(trial.error is None for trial in found)
    }
    for method, found in results.items():
        if len(found) < num_trials:
            console.print(f"{method}: {len(found)} of {num_trials} trials, there is no more to try", highlight=False)
        console.print(to_rich(_sheet(method, found, best.get(method))))
        for key, value in best[method].settings.items() if method in best else ():
            edge = edge_of(value, [trial.settings[key] for trial in found])
            if edge:
                said = f"the best {key}, {value}, is the {edge}; more --trials may find a better one beyond it"
                console.print(f"{method}: {said}", soft_wrap=True, highlight=False)
    chosen = {method: trial.settings for method, trial in best.items()}
    environments = [trial.run.environment for trial in best.values() if trial.run is not None]
    write_json(
        root / "tune.json",
        {
            "preset": preset,
            "seed": results[methods[0]][0].experiment.seed,
            "evaluate_on": "validation",
            "chosen_by": "final_accuracy",
            "overrides": overrides,
            "num_tasks": num_tasks,
            "environment": dict(environments[0]) if environments else None,
            "trials": [trial.as_json() for found in results.values() for trial in found],
            "chosen": chosen,
        },
    )
    path = root / f"{name}-tuned.toml"
    write_text(path, tuned_preset(preset, chosen))
    console.print(f"tuned preset: {path}", soft_wrap=True, highlight=False)
    lost = [method for method in methods if method not in best]
    return [f"no trial of {method} came to its end: {results[method][0].error}" for method in lost]


def _search(
    console: Console, preset: str, grids: Mapping[str, Grid], num_trials: int, root: Path, num_processes: int
) -> dict[str, list[Trial]]:
    """Make the trials of all methods round by round, each round about the best of those before."""
    made: dict[str, list[Trial]] = {method: [] for method in grids}
    for size in round_sizes(num_trials):
        trials: list[tuple[str, Trial]] = []
        for method, grid in grids.items():
            scores = {trial.point: trial.score for trial in made[method]}
            trials += [(method, trial) for trial in next_trials(grid, scores, size)]
        jobs = [Job(trial.label, preset, trial.experiment, root / "trials" / trial.label) for _, trial in trials]
        reasons = run_jobs(console, jobs, num_processes)
        for (method, trial), job in zip(trials, jobs, strict=True):
            error = reasons.get(job.label)
            made[method].append(replace(trial, run=None if error else read_run(job.folder), error=error))
    return made


def validation_overrides(preset: str, method: str, overrides: Sequence[str], num_tasks: int | None) -> list[str]:
    """Return the overrides of every trial: test images are out of reach, and the stream ends where it is told to."""
    for override in overrides:
        stream = parse_override(override).get("stream")
        if isinstance(stream, dict) and stream.get("evaluate_on", "validation") != "validation":
            raise SettingsError(
                f"--set {override} would tune on test images; leave it out: tuning looks at validation images alone"
            )
    words = [*overrides, "stream.evaluate_on=validation"]
    if num_tasks is not None:
        stream_settings = make_experiment(preset, method, words).stream
        words.append(f"stream.num_classes={num_classes_of(stream_settings, num_tasks)}")
    return words


def num_classes_of(stream: StreamSettings, num_tasks: int) -> int:
    """Return how many classes the first tasks of a stream have."""
    first = stream.first or stream.increment
    num_classes = first + (num_tasks - 1) * stream.increment
    if stream.num_classes is None:
        return num_classes
    all_tasks = len(task_sizes(stream.num_classes, first, stream.increment))
    if num_tasks > all_tasks:
        raise SettingsError(
            f"--tasks got {num_tasks}, but the preset's stream has {all_tasks}; ask for at most so many"
        )
    return min(num_classes, stream.num_classes)


def _sheet(method: str, trials: Sequence[Trial], best: Trial | None) -> Sheet:
    """The trials of one method, the best first."""
    ranked = sorted(trials, key=lambda trial: trial.score, reverse=True)
    rows = tuple(
        (
            ", ".join(f"{key} {value}" for key, value in trial.settings.items()) or "nothing to tune",
            percent(trial.figures.get("average_accuracy")),
            "failed" if trial.error else percent(trial.figures["final_accuracy"]),
        )
        for trial in ranked
    )
    marked = frozenset(index for index, trial in enumerate(ranked) if trial is best)
    return Sheet(f"{method}: trials on validation images, in percent", ("Settings", "Average", "Final"), rows, marked)


def tuned_preset(preset: str, chosen: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a preset that extends another with the chosen settings of each method."""
    files = (".toml", ".safetensors")
    parent = "+".join(str(Path(layer).resolve()) if layer.endswith(files) else layer for layer in layers_of(preset))
    lines = ["# Chosen by final accuracy on validation images; tune.json holds all trials."]
    lines += [f"extends = {json.dumps(parent, ensure_ascii=False)}"]
    for method, settings in chosen.items():
        if settings:
            lines += table_lines(method, settings)
    return "\n".join(lines) + "\n"
