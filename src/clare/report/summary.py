"""The figures of all methods and runs as one JSON file for other programs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clare.files import write_json
from clare.metrics.bootstrap import Interval
from clare.metrics.summary import summarise
from clare.report.groups import Standing, choose_reference, compare, rank
from clare.report.record import RunRecord
from clare.report.standings import Failure


def write_summary(
    runs: Sequence[RunRecord],
    folder: Path,
    failures: Sequence[Failure] = (),
    ranking: Mapping[str, Sequence[Standing]] | None = None,
    comparisons: Sequence[Standing] | None = None,
) -> Path:
    """Write `summary.json`: each method's figures over its seeds, costs, difference to the reference, and runs."""
    path = folder / "summary.json"
    by_run = summary_of(runs, comparisons)
    labels = dict(zip((run.folder for run in runs), by_run, strict=True))
    difference = f"difference_to_{choose_reference(runs)}"
    standings = {each.group.label: each for standings in (ranking or rank(runs)).values() for each in standings}
    order = {run.folder: index for index, run in enumerate(runs)}
    summary: dict[str, dict[str, Any]] = {}
    for label, standing in sorted(standings.items(), key=lambda item: order[item[1].group.runs[0].folder]):
        own = {labels[run.folder]: by_run[labels[run.folder]] for run in standing.group.runs}
        summary[label] = {**_figures(standing), "runs": own}
        if standing.intervals:
            summary[label][difference] = {"final_accuracy": _bounds(standing.intervals["final_accuracy"])}
    summary |= {failure.label: {"failed": failure.reason} for failure in failures}
    write_json(path, summary)
    return path


def _figures(standing: Standing) -> dict[str, Any]:
    """What a method reached over its seeds, and what it costs."""
    group = standing.group
    deviations = {name: _rounded(spread.deviation) for name, spread in group.figures.items()}
    return {
        "method": group.method,
        "head": group.head,
        "is_bound": standing.is_bound,
        "seeds": group.seeds,
        "finished": all(run.finished for run in group.counted),
        **{name: _rounded(spread.mean) for name, spread in group.figures.items()},
        "deviation": deviations if len(group.counted) > 1 else None,
        "num_trained": group.num_trained,
        "num_stored": group.num_stored,
        "passes_per_image": group.passes_per_image,
        "seconds": round(group.seconds, 3),
    }


def summary_of(runs: Sequence[RunRecord], comparisons: Sequence[Standing] | None = None) -> dict[str, dict[str, Any]]:
    """The figures of each run by its label; a difference is [difference, low, high] as fractions."""
    summary: dict[str, dict[str, Any]] = {}
    method = choose_reference(runs)
    for each in comparisons or compare(runs):
        figures: dict[str, Any] = {
            **summarise(each.run),
            "num_tasks": len(each.run.tasks),
            "finished": each.run.finished,
            "seed": each.run.preset["seed"],
        }
        if each.intervals:
            figures[f"difference_to_{method}"] = {name: _bounds(interval) for name, interval in each.intervals.items()}
        summary[each.group.label] = figures
    return summary


def _bounds(interval: Interval) -> list[float]:
    """A difference and its bounds, rounded to six digits."""
    return [round(bound, 6) for bound in (interval.difference, interval.low, interval.high)]


def _rounded(value: float | None) -> float | None:
    """Six digits of what was measured."""
    return None if value is None else round(value, 6)
