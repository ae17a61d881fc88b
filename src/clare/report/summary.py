"""The figures of all runs as one JSON file for other programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clare.files import write_json
from clare.report.compare import choose_reference, compare
from clare.report.record import RunRecord


def write_summary(runs: Sequence[RunRecord], folder: Path, reference: str | None = None, seed: int = 0) -> Path:
    """Write `summary.json`: for each method its figures, and its differences to the reference with their bounds."""
    path = folder / "summary.json"
    write_json(path, summary_of(runs, reference, seed))
    return path


def summary_of(runs: Sequence[RunRecord], reference: str | None = None, seed: int = 0) -> dict[str, dict[str, Any]]:
    """The figures of each run by its label; a difference is [difference, low, high] as fractions."""
    summary: dict[str, dict[str, Any]] = {}
    comparisons = compare(runs, reference, seed)
    method = choose_reference(runs, reference)
    for each in comparisons:
        figures: dict[str, Any] = {
            **each.summary,
            "num_tasks": len(each.run.tasks),
            "finished": each.run.finished,
            "seed": each.run.preset["seed"],
        }
        if each.intervals:
            figures[f"difference_to_{method}"] = {
                name: [round(bound, 6) for bound in (interval.difference, interval.low, interval.high)]
                for name, interval in each.intervals.items()
            }
        summary[each.label] = figures
    return summary
