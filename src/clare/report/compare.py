"""Set runs side by side: a name for each, and its difference to the reference on the same stream and backbone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clare.errors import RunError, nearest
from clare.metrics.bootstrap import STATISTICS, Interval, Pair, Statistic, paired_intervals
from clare.metrics.summary import RunSummary, summarise
from clare.report.record import RunRecord

NUM_SAMPLES = 2000
LEVEL = 0.95
DEFAULT_REFERENCE = "clare"
OTHER_STREAM, OTHER_BACKBONE = "different stream", "different backbone"
"""Why a run has no reference."""


@dataclass(frozen=True)
class Comparison:
    """One run beside its reference: either the intervals of the differences, or a note why there are none."""

    label: str
    run: RunRecord
    summary: RunSummary
    reference: str | None
    intervals: dict[Statistic, Interval]
    note: str


def label_runs(runs: Sequence[RunRecord]) -> list[str]:
    """Name each run by its method, and by as much of its folder as tells it from the others."""
    levels = [
        [run.method for run in runs],
        [f"{run.method}@{run.folder.name}" for run in runs],
        [f"{run.method}@{run.folder.parent.name}/{run.folder.name}" for run in runs],
        [f"{run.method}@{run.folder}" for run in runs],
    ]
    counts = [Counter(level) for level in levels]
    return [
        next(
            (level[index] for level, count in zip(levels, counts, strict=True) if count[level[index]] == 1), run.method
        )
        for index, run in enumerate(runs)
    ]


def choose_reference(runs: Sequence[RunRecord], reference: str | None = None) -> str:
    """The method to compare with: the one asked for, else CLARE where it was run, else the first run's."""
    methods = [run.method for run in runs]
    if reference is None:
        return DEFAULT_REFERENCE if DEFAULT_REFERENCE in methods else methods[0]
    if reference not in methods:
        known = sorted(set(methods))
        raise RunError(
            f"no run of the method '{reference}' is here{nearest(reference, known)}; choose from {', '.join(known)}"
        )
    return reference


def compare(runs: Sequence[RunRecord], reference: str | None = None, seed: int = 0) -> list[Comparison]:
    """Compare each run with the reference method's first on its stream and backbone; `seed` sets the resamples."""
    if not runs:
        raise RunError("there is no run to compare; give one or more folders that `clare train` wrote")
    method = choose_reference(runs, reference)
    labels = label_runs(runs)
    comparisons = []
    for label, run in zip(labels, runs, strict=True):
        met = [index for index, other in enumerate(runs) if other.method == method and run.same_stream(other)]
        candidates = [index for index in met if run.same_backbone(runs[index])]
        if candidates:
            # A fresh generator for each pair: an interval does not depend on which other runs are reported.
            intervals, note = _difference(run, runs[candidates[0]], np.random.RandomState(seed))
        else:
            intervals, note = {}, OTHER_BACKBONE if met else OTHER_STREAM
        comparisons.append(
            Comparison(label, run, summarise(run), labels[candidates[0]] if candidates else None, intervals, note)
        )
    return comparisons


def _difference(
    run: RunRecord, against: RunRecord, random: np.random.RandomState
) -> tuple[dict[Statistic, Interval], str]:
    """The intervals of a run's differences to its reference, or a note why they cannot be had."""
    if run is against:
        return {}, "reference"
    if not run.tasks or len(run.tasks) != len(against.tasks):
        return {}, "unfinished"
    try:
        pair = Pair(run.evaluations, against.evaluations, run.start.classes)
        return paired_intervals([pair], list(STATISTICS), NUM_SAMPLES, LEVEL, random=random), ""
    except RunError:
        return {}, "no shared predictions"
