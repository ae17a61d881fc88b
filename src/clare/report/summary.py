"""The figures of all methods and runs as JSON has them, for other programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from clare.metrics.summary import summarise
from clare.report.groups import TASK_FIGURES, Standing
from clare.report.record import RunRecord
from clare.report.standings import Failure


def summary_of(
    runs: Sequence[RunRecord],
    comparisons: Sequence[Standing],
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure] = (),
) -> dict[str, Any]:
    """Each method's figures over its seeds, costs, difference to the reference, and runs."""
    by_run = summary_of_runs(comparisons)
    labels = dict(zip((run.folder for run in runs), by_run, strict=True))
    standings = [each for standings in ranking.values() for each in standings]
    summary: dict[str, Any] = {}
    for standing in sorted(standings, key=lambda each: list(labels).index(each.group.runs[0].folder)):
        own = {labels[run.folder]: by_run[labels[run.folder]] for run in standing.group.runs}
        summary[standing.group.label] = {**_figures(standing), "runs": own, **_differences(standing)}
    return summary | {failure.label: {"failed": failure.reason} for failure in failures}


def _figures(standing: Standing) -> dict[str, Any]:
    """What a method reached over its seeds, and what it costs."""
    group = standing.group
    deviations = {name: rounded(spread.deviation) for name, spread in group.figures.items()}
    return {
        "method": group.method,
        "head": group.head,
        "is_bound": standing.is_bound,
        "seeds": group.seeds,
        "finished": all(run.finished for run in group.counted),
        **{name: rounded(spread.mean) for name, spread in group.figures.items()},
        **{name: rounded(group.spread_of(name).mean) for name in TASK_FIGURES},
        "is_told_task": group.is_told_task,
        "deviation": deviations if len(group.counted) > 1 else None,
        **group.costs,
        "seconds": round(group.seconds, 3),
    }


def summary_of_runs(comparisons: Sequence[Standing]) -> dict[str, dict[str, Any]]:
    """The figures of each run by its label."""
    return {
        each.group.label: {
            **summarise(each.run),
            "num_tasks": len(each.run.tasks),
            "finished": each.run.finished,
            "seed": each.run.preset["seed"],
            **_differences(each),
        }
        for each in comparisons
    }


def _differences(standing: Standing) -> dict[str, Any]:
    """The differences to the reference, where there are any, as [difference, low, high] in fractions."""
    if standing.against is None or not standing.intervals:
        return {}
    found = {
        name: [rounded(bound) for bound in (each.difference, each.low, each.high)]
        for name, each in standing.intervals.items()
    }
    return {f"difference_to_{standing.against.method}": found}


def rounded(value: float | None) -> float | None:
    """Six digits of what was measured."""
    return None if value is None else round(value, 6)
