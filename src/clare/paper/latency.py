"""How long one image takes to classify: the bare backbone, a plain adapter, and methods after all their tasks."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from clare.backbones.vit import Backbone, load_backbone, num_channels
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.methods import METHODS
from clare.methods.base import Method
from clare.model.folder import load_model
from clare.presets.schema import Experiment
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
        method.tasks = list(like.tasks)
        method.head.append(method.head.rows.new_zeros(len(method.classes), method.head.row_size))
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


def now_on(device: torch.device) -> float:
    """Return the time once all work queued on a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
