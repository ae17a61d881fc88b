"""Training times from the records, and latencies, as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from clare.paper.latency import BARE, Latency
from clare.paper.results import Cell, Results
from clare.paper.tables import number
from clare.report.tables import NONE, Sheet, duration

Latencies = Mapping[str, Sequence[Latency]]
"""Latencies by preset; a preset whose models are not all there has none."""


def time_sheet(results: Results, preset: str) -> Sheet:
    """Wall time of learning and evaluating the stream, and as a multiple of the reference's."""
    stream, printed_hours = paper_hours(results)
    reference = results.cells[preset, results.study.reference]
    rows = []
    for cell in results.rows(preset):
        hours = printed_hours.get(cell.row.key)
        rows.append(
            (
                cell.row.label,
                NONE if cell.seconds.mean is None else duration(cell.seconds.mean),
                number(ratio(cell.seconds.mean, reference.seconds.mean)),
                NONE if hours is None else f"{hours:.2f} h",
                number(ratio(hours, printed_hours.get(reference.row.key))),
            )
        )
    theirs = f"paper ({stream}, {results.paper.device})"
    header = ("Row", "Time", "times CLARE's", theirs, "paper, times CLARE's")
    return Sheet(f"Time of a run, {results.setting(preset).experiment.name}", header, tuple(rows))


def paper_hours(results: Results) -> tuple[str, dict[str, float]]:
    """Return the one stream of which the paper prints times, and the hours of its rows."""
    ((stream, cells),) = results.paper.numbers[results.study.name].items()
    return stream, {key: published.hours for key, published in cells.items() if published.hours is not None}


def ratio(value: float | None, other: float | None) -> float | None:
    """One number over another, where there are both."""
    return None if value is None or not other else value / other


def latency_sheet(results: Results, preset: str, latencies: Sequence[Latency]) -> Sheet:
    """Median milliseconds per image with their quartiles, and as a multiple of the bare backbone's."""
    sizes = sorted({each.batch_size for each in latencies})
    labels = dict.fromkeys(each.label for each in latencies)
    by_place = {(each.label, each.batch_size): each for each in latencies}
    rows = []
    for label in labels:
        cells = [label]
        for size in sizes:
            each, bare = by_place[label, size], by_place[BARE, size]
            cells += [milliseconds(each), number(ratio(each.median, bare.median))]
        rows.append(tuple(cells))
    header = ["Model", *(text for size in sizes for text in (f"ms per image, batch {size}", "times bare"))]
    name = results.setting(preset).experiment.name
    num_tasks = _num_tasks(results.rows(preset))
    # Large batches may have been too slow for as many calls as small ones.
    repeats = sorted({each.num_repeats for each in latencies})
    calls = f"{repeats[0]} to {repeats[-1]}" if len(repeats) > 1 else f"{repeats[0]}"
    title = f"Latency after {num_tasks} tasks, median [quartiles] of {calls} calls, {name}"
    return Sheet(title, tuple(header), tuple(rows))


def milliseconds(each: Latency) -> str:
    """Median and quartiles in milliseconds."""
    return f"{1000 * each.median:.3f} [{1000 * each.low:.3f}, {1000 * each.high:.3f}]"


def _num_tasks(cells: Sequence[Cell]) -> int:
    """How many tasks the models have learnt."""
    return max((len(record.tasks) for cell in cells for record in cell.records), default=0)


def efficiency_sheets(results: Results, latencies: Latencies) -> list[Sheet]:
    """All tables of times and latencies."""
    found = []
    for setting in results.settings:
        found.append(time_sheet(results, setting.preset))
        measured = latencies.get(setting.preset)
        if measured:
            found.append(latency_sheet(results, setting.preset, measured))
    return found


def as_values(latencies: Latencies) -> dict[str, Any]:
    """The latencies for the JSON file, in seconds per image."""
    return {"latency": {preset: [asdict(each) for each in measured] for preset, measured in latencies.items()}}
