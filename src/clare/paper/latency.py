"""What runs cost: training times from the records, and how long one image takes to classify, as tables."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from clare.backbones.vit import Backbone, load_backbone, num_channels
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.state import rebuild
from clare.model.folder import load_model
from clare.paper.estimate import now_on
from clare.paper.paper import Published
from clare.paper.results import Results
from clare.paper.tables import number
from clare.presets.schema import Experiment
from clare.report.tables import NONE, Sheet, duration
from clare.seeds import generator_at
from clare.settings import build_settings

BATCH_SIZES = (1, 32)
NUM_WARM_UPS = 2
NUM_REPEATS = 30
MIN_REPEATS = 5
MAX_SECONDS = 20.0
BARE, PLAIN = "bare backbone", "backbone + plain adapter"


@dataclass(frozen=True)
class Latency:
    """Seconds per image: the median of repeated calls and their quartiles."""

    label: str
    batch_size: int
    median: float
    low: float
    high: float
    num_repeats: int


def summarise_times(label: str, batch_size: int, seconds: Sequence[float]) -> Latency:
    """Turn the seconds of some calls into seconds per image."""
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Latency(label, batch_size, median / batch_size, low / batch_size, high / batch_size, len(seconds))


def measure_latencies(experiment: Experiment, models: Mapping[str, Path]) -> list[Latency]:
    """Time every model, beside the bare backbone and a plain adapter of the first one's shape, by turns."""
    ranks = Ranks(EngineSettings(device=experiment.engine.device, precision=experiment.engine.precision))
    loaded = {label: load_model(folder)[0] for label, folder in models.items()}
    methods = {**plain_methods(experiment, next(iter(loaded.values()))), **loaded}
    for method in methods.values():
        method.to(ranks.device).eval()
    found: list[Latency] = []
    for batch_size in BATCH_SIZES:
        calls = {label: _call(ranks, method, experiment, batch_size) for label, method in methods.items()}
        times = by_turns(calls, lambda: now_on(ranks.device))
        found += [summarise_times(label, batch_size, seconds) for label, seconds in times.items()]
    return found


def plain_methods(experiment: Experiment, like: Method) -> dict[str, Method]:
    """Return a bare backbone, and one with an adapter that nothing was learnt in, with a head of as many classes."""
    settings = like.settings.model_dump(mode="json")
    head = {"kind": "prototype"}
    built = {
        BARE: _build("simplecil", load_backbone(experiment.backbone), {"head": head}),
        PLAIN: _build("finetune", load_backbone(experiment.backbone), {"head": head, "adapter": settings["adapter"]}),
    }
    for method in built.values():
        rebuild(method, {"tasks": [list(task) for task in like.tasks], "block_size": 0})
    return built


def _build(name: str, backbone: Backbone, values: Mapping[str, object]) -> Method:
    """Make a method that has learnt nothing."""
    kind = METHODS.get(name)
    return kind(backbone, build_settings(kind.settings_type, values, "method"), 0)


def _call(ranks: Ranks, method: Method, experiment: Experiment, batch_size: int) -> Callable[[], object]:
    """Return a function that classifies a batch of noise."""
    side = experiment.transforms.image_size
    channels = num_channels(method.backbone)
    shape = (batch_size, channels, side, side)
    images = torch.rand(shape, generator=generator_at(experiment.seed, "latency")).to(ranks.device)

    def call() -> object:
        with torch.no_grad(), ranks.autocast():
            return method(images)

    return call


def by_turns(calls: Mapping[str, Callable[[], object]], now: Callable[[], float]) -> dict[str, list[float]]:
    """Time all calls once in each round, so that what else the machine does meets them alike."""
    times: dict[str, list[float]] = {label: [] for label in calls}
    started = now()
    for repeat in range(NUM_WARM_UPS + NUM_REPEATS):
        for label, call in calls.items():
            before = now()
            call()
            if repeat >= NUM_WARM_UPS:
                times[label].append(now() - before)
        if repeat + 1 >= NUM_WARM_UPS + MIN_REPEATS and now() - started > MAX_SECONDS:
            break
    return times


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
