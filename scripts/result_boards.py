"""All that was measured on one preset: runs that differ in nothing but their seed as groups, and their differences."""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from result_files import StoredRun

from clare.errors import RunError
from clare.metrics.accuracy import FloatArray
from clare.report.groups import Group

OURS = ("clare", "clare-plus")
TOLD_BY_HEAD = (
    "head.form",
    "head.strategy",
    "head.read_blocks",
    "head.read_patches",
    "head.read_centre",
    "head.read_looks",
)
NORMAL_QUANTILE = 1.959964
"""Half the width of a 95 % interval in standard deviations."""


@dataclass(frozen=True)
class Kind(Group):
    """A method with its settings, run with one or more seeds, as the tables of `clare compare` take it."""

    runs: tuple[StoredRun, ...]

    @property
    def changes(self) -> Mapping[str, str]:
        """What differs from the preset's own settings for the method."""
        return self.runs[0].changes

    @property
    def is_bound(self) -> bool:
        """Whether all classes were met at once."""
        return self.method == "joint"

    @property
    def changes_head_alone(self) -> bool:
        """Whether nothing but the head differs from the preset, if anything does."""
        return all(key.startswith("head.") for key in self.changes)

    @property
    def name(self) -> str:
        """The method with what differs from the preset, but for what the head's own words tell."""
        others = [f"{key}={value}" for key, value in self.changes.items() if key not in TOLD_BY_HEAD]
        return f"{self.method} ({', '.join(others)})" if others else self.method

    @property
    def final(self) -> float:
        """The mean of the final accuracies."""
        return cast(float, self.figures["final_accuracy"].mean)


@dataclass(frozen=True)
class Difference:
    """How far one kind is ahead of another in final accuracy, by seed, with a 95 % interval over test images."""

    by_seed: tuple[float, ...]
    deviation: float | None
    """Standard deviation of the mean under resampling of test images; none where their number is unknown."""
    is_paired: bool = True
    """Whether both answered the same drawn images; otherwise they are taken as independent."""

    @property
    def mean(self) -> float:
        """The mean over the seeds that both have."""
        return round(statistics.fmean(self.by_seed), 6)

    @property
    def half_width(self) -> float:
        """Half the width of the interval, 0 where none can be had."""
        return round(NORMAL_QUANTILE * (self.deviation or 0.0), 6)

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return round(self.mean - self.half_width, 6)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return round(self.mean + self.half_width, 6)

    def __str__(self) -> str:
        bounds = "" if self.deviation is None else f" [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"
        seeds = f" ({', '.join(f'{100 * each:+.1f}' for each in self.by_seed)})" if len(self.by_seed) > 1 else ""
        mark = "" if self.is_paired or self.deviation is None else " unpaired"
        return f"{100 * self.mean:+.1f}{bounds}{mark}{seeds}"


@dataclass(frozen=True)
class Board:
    """The kinds that were run on one preset."""

    preset: str
    kinds: tuple[Kind, ...]

    @property
    def base(self) -> str:
        """The preset without the backbone laid over it."""
        return self.preset.partition("+")[0]

    @property
    def family(self) -> str:
        """The data set and the backbone, without the cut into tasks."""
        return re.sub(r"-\d+x\d+", "", self.base) + self.preset.removeprefix(self.base)

    @property
    def num_tasks(self) -> int:
        """The number of tasks of the stream."""
        return max(len(run.tasks) for kind in self.kinds for run in kind.runs)

    def find(self, method: str, changes: Mapping[str, str] | None = None) -> Kind | None:
        """Return the kind of a method with exactly these changes."""
        wanted = dict(changes or {})
        return next((kind for kind in self.kinds if kind.method == method and dict(kind.changes) == wanted), None)

    def at_head(self, method: str, head: str) -> Kind | None:
        """Return the kind of a method that has this head and differs from the preset in nothing else."""
        kinds = [kind for kind in self.kinds if kind.method == method and kind.head == head]
        kinds = [kind for kind in kinds if kind.changes_head_alone]
        return min(kinds, key=lambda kind: len(kind.changes), default=None)

    def ablations(
        self, method: str, changes: Mapping[str, str], along: Sequence[str] = ()
    ) -> Iterator[tuple[Kind, Kind]]:
        """Yield each kind of a method with these changes after the kind without them, and without what goes along."""
        for kind in self.kinds:
            if kind.method == method and changes.items() <= kind.changes.items():
                kept = {key: value for key, value in kind.changes.items() if key not in (*changes, *along)}
                base = self.find(method, kept)
                if base:
                    yield base, kind


def make_boards(results: Mapping[str, Sequence[StoredRun]]) -> list[Board]:
    """Put the results of each preset into groups that differ in nothing but their seed."""
    boards = []
    for preset, runs in results.items():
        together: dict[str, list[StoredRun]] = {}
        for run in _counted(runs):
            together.setdefault(run.label, []).append(run)
        boards.append(Board(preset, tuple(Kind(label, tuple(same)) for label, same in together.items())))
    return sorted(boards, key=lambda board: (board.family, board.num_tasks, board.preset))


def _counted(runs: Sequence[StoredRun]) -> Iterator[StoredRun]:
    """Yield runs with the number of their test images; those without answers have it from others of their classes."""
    numbers = {frozenset(run.start.classes): run.num_test_images for run in runs if run.num_test_images}
    for run in runs:
        number = run.num_test_images or numbers.get(frozenset(run.start.classes))
        yield replace(run, result={**run.result, "num_test_images": number})


def difference(kind: Kind, other: Kind) -> Difference | None:
    """Return how far a kind is ahead of another over the seeds that both have, or nothing when they share none."""
    pairs = [(run, each) for run in kind.runs for each in other.runs if run.seed == each.seed]
    pairs = [(run, each) for run, each in pairs if run.start.classes == each.start.classes]
    if not pairs:
        return None
    finals = [[round(each.tasks[-1].seen, 6) for each in pair] for pair in pairs]
    by_seed = tuple(round(first - second, 6) for first, second in finals)
    is_paired = all(run.result["final_answers"] is not None for pair in pairs for run in pair)
    return Difference(by_seed, _deviation(pairs) if is_paired else _independent(pairs), is_paired)


def _independent(pairs: Sequence[tuple[StoredRun, StoredRun]]) -> float | None:
    """Return the standard deviation of the mean difference of runs of which only the accuracies are known.

    Both runs answer the same images, mostly alike, so that this is rather too much; so is taking seeds as one draw.
    """
    deviations = []
    for pair in pairs:
        accuracies = [run.tasks[-1].seen for run in pair]
        if any(run.num_test_images is None for run in pair):
            return None
        shares = [a * (1 - a) / run.num_test_images for a, run in zip(accuracies, pair, strict=True)]
        deviations.append(math.sqrt(sum(shares)))
    return statistics.fmean(deviations)


def _deviation(pairs: Sequence[tuple[StoredRun, StoredRun]]) -> float | None:
    """Return the standard deviation of the mean difference when test images are drawn again within each class.

    An image is drawn for all seeds at once, as in the bootstrap of `clare compare`, of which this is the closed form.
    """
    gains: dict[tuple[str, int], list[FloatArray]] = {}
    try:
        for run, other in pairs:
            for name, gain in _gains(run, other):
                # Seeds that hold out other numbers of images of a class cannot share a draw of them.
                gains.setdefault((name, len(gain)), []).append(gain / len(pairs))
    except RunError:
        return None
    return float(np.sqrt(sum(len(parts[0]) * np.sum(parts, axis=0).var() for parts in gains.values())))


def _gains(run: StoredRun, other: StoredRun) -> Iterator[tuple[str, FloatArray]]:
    """Yield each class and what each of its images adds to the difference of the final accuracies."""
    target = run.evaluations.target[-1]
    if not np.array_equal(target, other.evaluations.target[-1]):
        raise RunError(f"{run.folder.name} and {other.folder.name} were not tested on the same images")
    right = [each.evaluations.predicted[-1] == target for each in (run, other)]
    gain = (right[0].astype(np.float64) - right[1]) / len(target)
    classes, starts = np.unique(target, return_index=True)
    for place, part in zip(classes.tolist(), np.split(gain, starts[1:]), strict=True):
        yield run.start.classes[place], part
