"""Which settings `clare tune` tries for a method: a grid around the preset's values, walked outwards."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from clare.errors import SettingsError, nearest
from clare.methods import METHODS
from clare.methods.base import Method
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.seeds import derive_seed


class Trial(NamedTuple):
    """Some settings of a method, under dotted keys, and the experiment that they make."""

    settings: dict[str, Any]
    experiment: Experiment

    @property
    def label(self) -> str:
        """The method and its settings, fit for the name of a folder."""
        words = [f"{key}={value}" for key, value in self.settings.items()]
        return "-".join([self.experiment.method_label, *words]).replace("/", "_")


class Option(NamedTuple):
    """A value to try, and how far it lies from the preset's."""

    distance: int
    value: Any


def draw_trials(preset: str, method: str, overrides: Sequence[str], seed: int | None, num_trials: int) -> list[Trial]:
    """Return the preset's own settings and then others, ever farther from them; more trials begin with fewer."""
    start = make_experiment(preset, method, overrides, seed)
    kind = METHODS.get(method)
    axes = {key: options(_value_at(kind, start, key), values, key) for key, values in _tunable(kind).items()}
    points = list(itertools.product(*axes.values()))
    random = np.random.RandomState(derive_seed(start.seed, kind.name, "trials") % 2**32)
    shuffled = [points[place] for place in random.permutation(len(points))]
    trials: list[Trial] = []
    for point in sorted(shuffled, key=lambda point: max((option.distance for option in point), default=0)):
        settings = {key: option.value for key, option in zip(axes, point, strict=True)}
        trials += _within_bounds(preset, method, overrides, seed, settings)
        if len(trials) == num_trials:
            break
    return trials


def edge_of(value: Any, tried: Sequence[Any]) -> str:
    """Say where a number is the last on its side of those that were tried, so that one beyond might be better still."""
    if isinstance(value, bool) or not isinstance(value, int | float) or len(set(tried)) < 2:
        return ""
    return {max(tried): "highest tried", min(tried): "lowest tried"}.get(value, "")


def _within_bounds(
    preset: str, method: str, overrides: Sequence[str], seed: int | None, settings: dict[str, Any]
) -> Iterator[Trial]:
    """Yield the trial of these settings unless the method refuses them."""
    words = [
        f"method.{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
    ]
    try:
        yield Trial(settings, make_experiment(preset, method, [*overrides, *words], seed))
    except SettingsError:
        return


def options(start: Any, values: Sequence[Any], key: str) -> list[Option]:
    """Return the preset's value and the others to try: numbers are factors on it, all else stands for itself."""
    if isinstance(start, bool) or not isinstance(start, int | float):
        return [Option(0, start), *(Option(1, value) for value in values if value != start)]
    if not all(isinstance(value, int | float) and value > 0 for value in values):
        raise SettingsError(f"`tunable` lists {values} for the number '{key}'; list factors above 0")
    far = sorted({round(abs(math.log(value)), 6) for value in values} | {0.0})
    found: dict[Any, Option] = {start: Option(0, start)}
    for factor in values:
        value = round(start * factor) if isinstance(start, int) else float(f"{start * factor:.6g}")
        found.setdefault(value, Option(far.index(round(abs(math.log(factor)), 6)), value))
    return list(found.values())


def _tunable(kind: type[Method]) -> dict[str, tuple[Any, ...]]:
    """Return what is to be tried of a method; one without a learning rate that lists nothing has nothing to try."""
    if kind.tunable is Method.tunable and "learning_rate" not in kind.settings_type.model_fields:
        return {}
    return kind.tunable


def _value_at(kind: type[Method], experiment: Experiment, key: str) -> Any:
    """Return the value of a method's setting by its dotted key."""
    value: Any = experiment.method
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            known = nearest(key, kind.settings_type.model_fields)
            raise SettingsError(f"the method '{kind.name}' lists '{key}' in `tunable`, but has no such setting{known}")
        value = value[part]
    return value
