"""Training times from the records, and latencies, as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from clare.paper.latency import BARE, Latency
from clare.paper.paper import Published
from clare.paper.results import Results
from clare.paper.tables import number
from clare.report.tables import NONE, Sheet, duration

Latencies = Mapping[str, Sequence[Latency]]
"""Latencies by preset; a preset whose models are not all there has none."""


def time_sheet(results: Results, preset: str) -> Sheet:
    """Wall time of learning and evaluating the stream, and as a multiple of the reference's."""
    # The paper prints times of one stream.
    ((stream, cells),) = results.paper.numbers[results.study.name].items()
    reference = results.cells[preset, results.study.reference]
    rows = []
    for cell in results.rows(preset):
        seconds, hours = cell.seconds.mean, cells.get(cell.row.key, Published()).hours
        ours = (NONE if seconds is None else duration(seconds), number(ratio(seconds, reference.seconds.mean)))
        theirs = (NONE if hours is None else f"{hours:.2f} h", number(ratio(hours, cells[reference.row.key].hours)))
        rows.append((cell.row.label, *ours, *theirs))
    paper = f"paper ({stream}, {results.paper.device})"
    header = ("Row", "Time", "times CLARE's", paper, "paper, times CLARE's")
    return Sheet(f"Time of a run, {results.name(preset)}", header, tuple(rows))


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
            median, low, high = (f"{1000 * seconds:.3f}" for seconds in (each.median, each.low, each.high))
            cells += [f"{median} [{low}, {high}]", number(ratio(each.median, bare.median))]
        rows.append(tuple(cells))
    header = ["Model", *(text for size in sizes for text in (f"ms per image, batch {size}", "times bare"))]
    num_tasks = max((len(record.tasks) for cell in results.rows(preset) for record in cell.records), default=0)
    # Large batches may have been too slow for as many calls as small ones.
    repeats = sorted({each.num_repeats for each in latencies})
    calls = f"{repeats[0]} to {repeats[-1]}" if len(repeats) > 1 else f"{repeats[0]}"
    title = f"Latency after {num_tasks} tasks, median [quartiles] of {calls} calls, {results.name(preset)}"
    return Sheet(title, tuple(header), tuple(rows))


def efficiency_sheets(results: Results, latencies: Latencies) -> list[Sheet]:
    """All tables of times and latencies."""
    found = []
    for preset in (setting.preset for setting in results.settings):
        found.append(time_sheet(results, preset))
        if measured := latencies.get(preset):
            found.append(latency_sheet(results, preset, measured))
    return found


def as_values(latencies: Latencies) -> dict[str, Any]:
    """The latencies for the JSON file, in seconds per image."""
    return {"latency": {preset: [asdict(each) for each in measured] for preset, measured in latencies.items()}}
