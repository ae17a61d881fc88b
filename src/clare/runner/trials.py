"""Which settings `clare tune` tries for a method: a grid around the preset's values, walked towards the best so far."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from clare.errors import SettingsError, nearest
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.protocols import FACTORS, Tunable
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.report.tables import is_number
from clare.seeds import derive_seed

FIRST_ROUND, ROUND = 3, 2
"""Trials before the first look at results, and between later looks: a value and its neighbours, then two more."""

Point = tuple[Any, ...]
"""A value for each setting that is tuned."""
Score = tuple[float, float]
"""What the best trial has most of."""


class Trial(NamedTuple):
    """Some settings of a method, under dotted keys, and the experiment that they make."""

    settings: dict[str, Any]
    experiment: Experiment

    @property
    def point(self) -> Point:
        """The values alone."""
        return tuple(self.settings.values())

    @property
    def label(self) -> str:
        """The method and its settings, fit for the name of a folder."""
        words = [f"{key}={value}" for key, value in self.settings.items()]
        return "-".join([self.experiment.method_label, *words]).replace("/", "_")


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
