"""Runs of one method over several seeds as one: means, deviations, costs, and the difference to the reference."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np

from clare.errors import RunError
from clare.identity import identity
from clare.metrics.bootstrap import STATISTICS, Interval, Pair, Statistic, paired_intervals
from clare.metrics.summary import summarise
from clare.report.record import RunRecord
from clare.report.tables import kept

DEFAULT_REFERENCE = "clare"
OTHER_STREAM, OTHER_BACKBONE, TOLD = "different stream", "different backbone", "told the task"
"""Why a run has no reference."""
TaskFigure = Literal["average_given", "final_given", "forgetting_given", "task_right"]
TASK_FIGURES: tuple[TaskFigure, ...] = get_args(TaskFigure)
"""Figures with the task given, and how often it is inferred rightly."""
FINAL: tuple[Statistic, ...] = ("final_accuracy",)


class Spread(NamedTuple):
    """A mean over seeds and, of several, their standard deviation."""

    mean: float | None
    deviation: float | None


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: tuple[RunRecord, ...]

    @property
    def method(self) -> str:
        """The name of the method that was run."""
        return self.runs[0].method

    @property
    def head(self) -> str:
        """How the rows of the method's head come about."""
        return self.runs[0].head

    @property
    def backbone(self) -> str:
        """The backbone by its name and by the beginning of its weights' hash."""
        backbone = self.runs[0].preset.get("backbone")
        name = backbone.get("name") if isinstance(backbone, dict) else None
        return f"{name or 'unnamed'} ({(self.runs[0].start.backbone_hash or 'no hash')[:8]})"

    @cached_property
    def counted(self) -> tuple[RunRecord, ...]:
        """The runs behind the figures: the finished ones, or all as long as none is finished."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs behind the figures."""
        return [int(run.preset["seed"]) for run in self.counted]

    @cached_property
    def figures(self) -> dict[Statistic, Spread]:
        """Mean and deviation of each figure."""
        return {name: self.spread_of(name) for name in STATISTICS}

    @property
    def is_told_task(self) -> bool:
        """Whether test images came with their task, so that only figures with the task given are the method's."""
        return self.runs[0].start.is_told_task

    def spread_of(self, name: Statistic | TaskFigure | Literal["new_task_accuracy"]) -> Spread:
        """Mean and deviation of one figure."""
        return spread([summarise(run)[name] for run in self.counted])  # type: ignore[literal-required]

    @property
    def order(self) -> float:
        """What groups are ranked by: the best final accuracy comes first, what has none last."""
        final = self.figures["final_accuracy"].mean
        return math.inf if final is None else -final

    @property
    def costs(self) -> dict[str, int | None]:
        """The most numbers that a phase trained, what is kept after the last task, and passes to classify an image."""
        run = self.counted[0]
        names = ("num_stored", "passes_per_image", "num_pictures", "picture_bytes")
        last = {name: getattr(run.tasks[-1], name) if run.tasks else None for name in names}
        return {"num_trained": run.num_trained, **last}

    @property
    def kept(self) -> str:
        """What it keeps of training pictures, in words, and nothing where it keeps none."""
        return kept(self.counted[0])

    @property
    def is_heavy(self) -> bool:
        """Whether what is kept takes more bytes than the training images would; not known of older runs."""
        costs, images = self.costs, self.counted[0].start.training_bytes
        return images is not None and 4 * (costs["num_stored"] or 0) + (costs["picture_bytes"] or 0) > images

    @property
    def peak_memory(self) -> int | None:
        """The most bytes that any task of any seed took."""
        known = [task.peak_memory for run in self.counted for task in run.tasks if task.peak_memory is not None]
        return max(known, default=None)

    @property
    def seconds(self) -> float:
        """Time of learning and evaluating all tasks, a mean over seeds."""
        return statistics.fmean(sum(task.seconds for task in run.tasks) for run in self.counted)


@dataclass(frozen=True)
class Standing:
    """A group beside the reference: the differences to it, or a note why there are none."""

    group: Group
    intervals: dict[Statistic, Interval]
    note: str
    is_bound: bool
    """Whether the method saw all classes at once where the others met them task by task."""
    against: Group | None = None
    """The group that it is set beside; none where none met the same classes on the same backbone."""

    @property
    def run(self) -> RunRecord:
        """The run, of a group that is a single one."""
        return self.group.runs[0]

    @property
    def is_reference(self) -> bool:
        """Whether the others are compared with this one."""
        return self.note == "reference"

    @property
    def figures(self) -> dict[Statistic, Spread]:
        """The figures that can be set beside those of the others: a bound has only a final accuracy."""
        if not self.is_bound:
            return self.group.figures
        return {**dict.fromkeys(STATISTICS, Spread(None, None)), "final_accuracy": self.group.figures["final_accuracy"]}


def spread(values: Sequence[float | None]) -> Spread:
    """Mean and sample standard deviation of what was measured; one value has no deviation."""
    known = [value for value in values if value is not None]
    return Spread(
        statistics.fmean(known) if known else None,
        statistics.stdev(known) if len(known) > 1 else None,
    )


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    """Put together the runs that differ in their seed alone, in the order in which they first appear."""
    together: dict[str, list[RunRecord]] = {}
    for run in runs:
        settings = {**identity(run.preset), "seed": None}
        together.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    members: list[list[RunRecord]] = []
    for same in together.values():
        # A seed that comes twice is a repetition, which must not pass for a second seed.
        has_repetitions = len({run.preset["seed"] for run in same}) < len(same)
        members += [[run] for run in same] if has_repetitions else [same]
    members.sort(key=lambda group: list(runs).index(group[0]))
    labels = label_runs([group[0] for group in members])
    return [Group(label, tuple(group)) for label, group in zip(labels, members, strict=True)]


def label_runs(runs: Sequence[RunRecord]) -> list[str]:
    """Name each run by its method, and by as much of its folder as tells it from the others."""
    names = []
    for run in runs:
        parts = ("", f"@{run.folder.name}", f"@{run.folder.parent.name}/{run.folder.name}", f"@{run.folder}")
        names.append([f"{run.method}{part}" for part in parts])
    counts = Counter(name for own in names for name in own)
    return [next((name for name in own if counts[name] == 1), own[0]) for own in names]


def choose_reference(runs: Sequence[RunRecord]) -> str:
    """The method to compare with: CLARE where it was run, else that of the first run."""
    methods = [run.method for run in runs]
    return DEFAULT_REFERENCE if DEFAULT_REFERENCE in methods else methods[0]


def compare(runs: Sequence[RunRecord]) -> list[Standing]:
    """Compare each run with the reference method's first on its stream and backbone."""
    if not runs:
        raise RunError("there is no run to compare; give one or more folders that `clare train` wrote")
    method = choose_reference(runs)
    alone = [Group(label, (run,)) for label, run in zip(label_runs(runs), runs, strict=True)]
    return [_stand(each, alone, method, tuple(STATISTICS)) for each in alone]


def rank(runs: Sequence[RunRecord]) -> dict[str, list[Standing]]:
    """Rank groups of equal heads by final accuracy, bounds last; of several backbones each has a ranking of its own."""
    groups = group_runs(runs)
    has_several = len({run.start.backbone_hash for run in runs} - {None}) > 1
    method = choose_reference(runs)
    standings = [_stand(group, groups, method, FINAL) for group in groups]
    ranking: dict[str, list[Standing]] = {}
    for standing in sorted(standings, key=lambda each: (each.is_bound, each.group.order)):
        group = standing.group
        place = "; ".join(filter(None, [group.head, f"backbone: {group.backbone}" if has_several else ""]))
        ranking.setdefault(place, []).append(standing)
    # The reference's head comes first, then the others as they rank.
    return dict(sorted(ranking.items(), key=lambda item: not any(each.is_reference for each in item[1])))


def intervals_of(pairs: Sequence[Pair], names: Sequence[Statistic]) -> dict[Statistic, Interval]:
    """How far the first of each pair of runs is ahead of the second, a mean over pairs; the same pairs, the same draws.

    Each interval has draws of its own, so that it does not depend on which other runs are reported.
    """
    return paired_intervals(pairs, names, random=np.random.RandomState(0))


def _stand(group: Group, groups: Sequence[Group], method: str, names: Sequence[Statistic]) -> Standing:
    """Compare a group with the first of the reference method that met the same classes on the same backbone."""
    is_final = names is FINAL
    met = [other for other in groups if other.method == method and _pairs(group, other, is_final)]
    rivals = [other for other in met if group.runs[0].same_backbone(other.runs[0])]
    # In one task it met the classes that another group met in several.
    together = [pair for other in groups for pair in _pairs(group, other, is_final=True)]
    is_bound = any(len(run.start.task_sizes) == 1 < len(each.start.task_sizes) for run, each in together)
    if not rivals:
        return Standing(group, {}, OTHER_BACKBONE if met else OTHER_STREAM, is_bound)
    if rivals[0] is group:
        return Standing(group, {}, "reference", is_bound, group)
    if group.is_told_task or rivals[0].is_told_task:
        return Standing(group, {}, TOLD, is_bound, rivals[0])
    # A difference says something between runs that came to their ends, or equally far.
    pairs = [
        (run, each)
        for run, each in _pairs(group, rivals[0], is_final)
        if ((run.finished and each.finished) if is_final else len(run.tasks) == len(each.tasks) > 0)
    ]
    if not pairs:
        return Standing(group, {}, "unfinished", is_bound, rivals[0])
    try:
        answers = [Pair(run.evaluations, each.evaluations, run.start.classes) for run, each in pairs]
        return Standing(group, intervals_of(answers, names), "", is_bound, rivals[0])
    except RunError:
        return Standing(group, {}, "no shared predictions", is_bound, rivals[0])


def _pairs(group: Group, other: Group, is_final: bool) -> list[tuple[RunRecord, RunRecord]]:
    """The runs of two groups that met the same classes in the same order; of final accuracies alone, or all at once."""
    return [
        (run, each)
        for run in group.runs
        for each in other.runs
        if run.start.classes == each.start.classes
        and (
            run.start.task_sizes == each.start.task_sizes
            or (is_final and 1 in (len(run.start.task_sizes), len(each.start.task_sizes)))
        )
    ]
