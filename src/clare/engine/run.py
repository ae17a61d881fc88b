"""An experiment from stream to record; the same call again goes on where it stopped."""

import platform
import resource
import sys
import time
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from clare.backbones.vit import Backbone, load_backbone
from clare.data.placement import this_machine
from clare.data.sources import Dataset, load_dataset
from clare.data.stream import Stream, make_stream, merge_tasks
from clare.data.transforms import Transforms
from clare.engine.commit import source_commit
from clare.engine.context import Context, Listener
from clare.engine.evaluate import count_parameters, evaluate, measured
from clare.engine.folder import RunFolder, working_alone
from clare.engine.learn import learn_task
from clare.engine.passes import FeatureCache
from clare.engine.ranks import Ranks, is_first_rank
from clare.engine.settings import EngineSettings
from clare.errors import DivergedError, SettingsError
from clare.methods.base import METHODS, Method, prepare
from clare.methods.mistakes import in_one_sentence
from clare.methods.protocols import LearnsAllAtOnce, capacity_of, diagnosis_of, is_told_task
from clare.methods.state import snapshot_of
from clare.model.folder import has_whole_model, restored, save_model
from clare.presets.schema import Experiment
from clare.record import EndEvent, StartEvent, TaskEvent
from clare.version import __version__

MODEL = "model"
"""The folder of the model that a finished run leaves."""


def run_experiment(experiment: Experiment, folder: Path, listener: Listener) -> None:
    """Run a method over a stream, or the rest of it, and write everything into the folder, as the only one there."""
    # Before other ranks are launched, which would wait for one that is refused.
    with working_alone(folder) if is_first_rank() else nullcontext():
        _run_alone(experiment, folder, listener)


def _run_alone(experiment: Experiment, folder: Path, listener: Listener) -> None:
    """Run an experiment in a folder that is locked."""
    ranks = start_ranks(experiment.engine)
    run = RunFolder(folder, writes=ranks.rank == 0)
    preset = experiment.model_dump(mode="json")
    run.inspect(preset)
    lacks_model = not (run.has_ended and has_whole_model(folder / MODEL))
    ranks.barrier()
    backbone = load_backbone(experiment.backbone)
    transforms = make_transforms(experiment, backbone)
    context = Context(ranks, transforms, experiment.engine, experiment.seed, listener)
    dataset = load_data(experiment, backbone, context)
    if dataset.num_skipped:
        listener.notice(f"{dataset.num_skipped} unreadable images were left out")
    stream = make_stream(dataset, experiment.stream, experiment.seed)
    kind = METHODS.get(experiment.method_name)
    if issubclass(kind, LearnsAllAtOnce):
        stream = merge_tasks(stream)
    with in_one_sentence(kind):
        method = kind(backbone, experiment.method_settings(), experiment.seed)
        prepare(method, len(stream.tasks), max(len(task.classes) for task in stream.tasks))
        method.to(ranks.device)
        # Only now, when data and backbone are known to be good: a mistake in either leaves no folder behind.
        run.begin(preset, environment(ranks))
        _take_up(run, method, stream, backbone, dataset.num_skipped)
        kept = FeatureCache()
        for task in stream.tasks[run.position.task :]:
            _one_task(context, run, method, stream, task.index, kept)
    if lacks_model and run.writes:
        save_model(folder / MODEL, method, backbone, transforms.settings)
    if not run.has_ended:
        run.tell(EndEvent(time=time.time()))
        run.commit(ended=True)
    ranks.barrier()


def start_ranks(settings: EngineSettings) -> Ranks:
    """Launch the processes of a run, on as many threads as it asks for."""
    ranks = Ranks(settings)
    ranks.fabric.launch()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    return ranks


def make_transforms(experiment: Experiment, backbone: Backbone) -> Transforms:
    """Build the transforms, whose images must have the backbone's size."""
    size = experiment.transforms.image_size
    if size != backbone.image_size:
        raise SettingsError(
            f"`transforms.image_size` is {size}, but the backbone takes {backbone.image_size}; "
            "make them equal, or set `backbone.image_size`"
        )
    return Transforms(experiment.transforms, backbone.mean, backbone.std)


def load_data(experiment: Experiment, backbone: Backbone, context: Context) -> Dataset:
    """Read the data set with the backbone's channels to where the settings keep it."""
    settings = experiment.data.model_copy(update={"channels": backbone.channels})
    machine = this_machine(context.ranks.device, context.ranks.world_size)
    return load_dataset(settings, machine, context.listener.notice)


def _take_up(run: RunFolder, method: Method, stream: Stream, backbone: Backbone, num_skipped: int) -> None:
    """Put the method where the run stopped, or record that the run begins."""
    snapshot = run.snapshot()
    if snapshot is not None:
        restored(run.path, method, snapshot)
    if run.position.record_bytes == 0:
        capacity = capacity_of(method)
        start = StartEvent(
            time=time.time(),
            method=method.name,
            classes=tuple(stream.classes),
            task_sizes=tuple(len(task.classes) for task in stream.tasks),
            num_coordinates=capacity.num_coordinates if capacity else None,
            backbone_hash=backbone.fingerprint,
            is_told_task=is_told_task(method),
            training_bytes=sum(task.train.num_bytes(backbone.image_size) for task in stream.tasks),
            num_skipped=num_skipped,
        )
        run.tell(start)
        run.commit()


def _one_task(context: Context, run: RunFolder, method: Method, stream: Stream, index: int, kept: FeatureCache) -> None:
    """Learn a task, evaluate, record, commit."""
    task = stream.tasks[index]
    context.listener.task(index, len(stream.tasks), task.classes)
    started = time.perf_counter()
    reset_peak_memory(context.ranks.device)
    try:
        learn_task(context, method, task, run)
    except DivergedError:
        run.rewind()
        raise
    learnt = time.perf_counter() - started
    answers = evaluate(context, method, stream, index, kept)
    run.predictions(index, answers.predicted, answers.target)
    capacity = capacity_of(method)
    event = TaskEvent(
        task=index,
        **measured(method, answers, stream.task_of_class, index),
        capacity_used=1 - capacity.num_free / capacity.num_coordinates if capacity else None,
        num_claimed=capacity.num_claimed if capacity else None,
        num_free=capacity.num_free if capacity else None,
        diagnosis=diagnosis_of(method),
        learn_seconds=round(learnt, 3),
        evaluate_seconds=round(answers.seconds, 3),
        peak_memory=peak_memory(context.ranks.device),
        **count_parameters(method),
    )
    run.tell(event)
    run.advance(snapshot_of(method))
    context.listener.measured(event)


def environment(ranks: Ranks) -> dict[str, Any]:
    """Return the versions and the machine that the results depend on."""
    device = torch.cuda.get_device_name(ranks.device) if ranks.device.type == "cuda" else platform.machine()
    packages = {name: version(name) for name in ("torch", "torchvision", "timm", "lightning", "numpy")}
    return {
        "clare": __version__,
        "commit": source_commit(),
        **packages,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{ranks.device.type}: {device}",
        "precision": ranks.precision,
        "threads": torch.get_num_threads(),
        "world_size": ranks.world_size,
    }


def reset_peak_memory(device: torch.device) -> None:
    """Let the peak of a GPU count from here; that of a process on a CPU always counts from its start."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Return the most bytes that tensors took on the GPU since the last reset, or this process ever took on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kilobytes elsewhere.
    return peak if sys.platform == "darwin" else 1024 * peak
