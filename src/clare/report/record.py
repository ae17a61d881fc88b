"""Read what a run has written: its preset, its environment, its record and its predictions."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load

from clare.errors import RunError
from clare.metrics.bootstrap import Evaluations
from clare.position import (
    ENVIRONMENT,
    POSITION,
    PRESET,
    RECORD,
    Position,
    committed_record,
    predictions_file,
    read_checked,
    read_position,
)
from clare.report.lines import Parameters, PhaseLine, Pool, StartLine, TaskLine
from clare.sealed import parse_object, read_bytes

REPEAT = "restore the file or repeat the run"
"""What to do about a damaged file."""


@dataclass(frozen=True)
class StartEvent:
    """What a run set out to do."""

    time: float
    method: str
    classes: tuple[str, ...]
    task_sizes: tuple[int, ...]
    num_coordinates: int | None
    backbone_hash: str | None


@dataclass(frozen=True)
class PhaseEvent:
    """One training phase of one task, with how many numbers it trained and the mean loss of each epoch."""

    task: int
    phase: str
    num_trained: int | None
    loss: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class TaskEvent:
    """What was measured after one task; `new` and `first` are the accuracies on the newest and the first task."""

    task: int
    seen: float
    new: float
    first: float
    per_task: tuple[float, ...]
    capacity_used: float | None
    num_claimed: int | None
    num_free: int | None
    learn_seconds: float
    evaluate_seconds: float
    num_stored: int | None
    passes_per_image: int | None
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    """What the method says about the task; empty where it says nothing, and in older records."""
    peak_memory: int | None = None
    """The most bytes taken: by tensors on a GPU during the task, or by the process so far."""

    @property
    def seconds(self) -> float:
        """Time taken to learn and evaluate the task."""
        return self.learn_seconds + self.evaluate_seconds


@dataclass(frozen=True)
class RunRecord:
    """One run as its folder tells it; predictions are read when they are first asked for."""

    folder: Path
    preset: Mapping[str, Any]
    environment: Mapping[str, Any]
    start: StartEvent
    phases: tuple[PhaseEvent, ...]
    tasks: tuple[TaskEvent, ...]
    finished: bool
    position: Position | None = None
    """How far the run was when it was read, and how to tell that its predictions are whole."""

    @property
    def method(self) -> str:
        """The name of the method that was run."""
        return self.start.method

    @property
    def num_trained(self) -> int | None:
        """The most numbers that any phase trained; none when nothing is known, 0 when nothing was trained."""
        counts = [phase.num_trained for phase in self.phases]
        known = [count for count in counts if count is not None]
        return None if len(known) < len(counts) else max(known, default=0)

    @property
    def head(self) -> str:
        """How the head's rows come about and what it reads, such as `cosine, aligned`; other heads are no equals."""
        return head_label(self.preset)

    @property
    def num_classes_seen(self) -> tuple[int, ...]:
        """Number of classes seen after each finished task."""
        return tuple(np.cumsum(self.start.task_sizes)[: len(self.tasks)].tolist())

    @cached_property
    def evaluations(self) -> Evaluations:
        """The predictions after every finished task."""
        tensors = [self._predictions(task.task) for task in self.tasks]
        return Evaluations(
            predicted=[each["predicted"].astype(np.int64) for each in tensors],
            target=[each["target"].astype(np.int64) for each in tensors],
            task_of_class=np.repeat(np.arange(len(self.start.task_sizes)), self.start.task_sizes),
        )

    def _predictions(self, task: int) -> dict[str, Any]:
        """Read the predicted and the true classes after one task."""
        path = self.folder / predictions_file(task)
        data = read_checked(self.folder, self.position, predictions_file(task))
        try:
            tensors: dict[str, Any] = load(data)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"could not read the predictions {path} ({error}); {REPEAT}") from None
        if not {"predicted", "target"} <= tensors.keys() or tensors["predicted"].shape != tensors["target"].shape:
            raise RunError(f"{path} does not hold as many predicted as target classes; repeat the run")
        num_classes = len(self.start.classes)
        for name in ("predicted", "target"):
            classes = tensors[name]
            is_right = classes.ndim == 1 and classes.dtype.kind in "iu"
            if not is_right or not ((classes >= 0) & (classes < num_classes)).all():
                raise RunError(f"{path} holds {name} classes that are none of the {num_classes}; {REPEAT}")
        return tensors

    def same_stream(self, other: "RunRecord") -> bool:
        """Whether both runs meet the same classes in the same tasks."""
        return self.start.classes == other.start.classes and self.start.task_sizes == other.start.task_sizes

    def same_backbone(self, other: "RunRecord") -> bool:
        """Whether both runs stand on the same weights, as far as both have recorded them."""
        hashes = (self.start.backbone_hash, other.start.backbone_hash)
        return None in hashes or hashes[0] == hashes[1]


def head_label(preset: Mapping[str, Any]) -> str:
    """Name the head of a resolved preset, whether or not it was run: how its rows come about, and what it reads."""
    method = preset.get("method")
    head = method.get("head") if isinstance(method, dict) else None
    if not isinstance(head, dict):
        return ""
    parts = [str(head[key]) for key in ("form", "strategy") if key in head]
    num_blocks, with_patches = int(head.get("read_blocks", 1)), bool(head.get("read_patches", False))
    if num_blocks > 1 or with_patches:
        patches = " with middle patches" if head.get("read_centre", False) else " with patches"
        parts.append(f"{num_blocks} block{'s'[: num_blocks - 1]}{patches if with_patches else ''}")
    num_looks = int(head.get("read_looks", 1))
    if num_looks > 1:
        parts.append(f"{num_looks} looks")
    return ", ".join(parts)


def read_run(folder: Path) -> RunRecord:
    """Read a run folder, also one whose run was killed."""
    missing = [name for name in (PRESET, ENVIRONMENT, RECORD) if not (folder / name).is_file()]
    if missing:
        raise RunError(f"{folder} is no run, it has no {', '.join(missing)}; give a folder that `clare train` wrote")
    position = read_position(folder) if (folder / POSITION).exists() else None
    start: StartEvent | None = None
    finished = False
    # A resumed run repeats the events of the task it was stopped in: the last telling counts.
    phases: dict[tuple[int, str], PhaseEvent] = {}
    tasks: dict[int, TaskEvent] = {}
    for number, event in _events(folder, position):
        try:
            match event.get("event"):
                case "start":
                    start, finished = _start_event(event), False
                case "phase":
                    phase = _phase_event(event)
                    phases[phase.task, phase.phase] = phase
                case "task":
                    task = _task_event(event)
                    tasks[task.task] = task
                case "end":
                    finished = True
        except ValueError as error:
            what = f"no valid {event['event']} event ({_reason(error)})"
            raise RunError(f"line {number} of {folder / RECORD} is {what}; repeat the run") from None
    if start is None:
        raise RunError(f"the run in {folder} has not started, its {RECORD} has no start event; wait or repeat the run")
    if sorted(tasks) != list(range(len(tasks))) or len(tasks) > len(start.task_sizes):
        raise RunError(
            f"{folder / RECORD} tells of the tasks {sorted(tasks)}, not of the first of {len(start.task_sizes)}; "
            "restore the file or repeat the run"
        )
    return RunRecord(
        folder=folder.resolve(),
        preset=_read_preset(folder, position),
        environment=_read_object(folder, position, ENVIRONMENT),
        start=start,
        phases=tuple(phases.values()),
        tasks=tuple(tasks[index] for index in range(len(tasks))),
        finished=finished,
        position=position,
    )


def find_runs(paths: Iterable[Path]) -> list[RunRecord]:
    """Read the runs at the given paths; a path is a run, or a folder that holds runs."""
    paths = list(paths)
    folders: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise RunError(f"there is no folder {path}; give a run, or a folder that holds runs")
        inner = [] if (path / RECORD).exists() else sorted(child for child in path.iterdir() if _has_started(child))
        folders.update(dict.fromkeys(folder.resolve() for folder in inner or [path]))
    if not folders:
        raise RunError("no folder of a run was given; give one or more folders that `clare train` wrote")
    return [read_run(folder) for folder in folders]


def _has_started(folder: Path) -> bool:
    """Whether the folder holds a record with at least one whole line."""
    record = folder / RECORD
    return record.is_file() and b"\n" in read_bytes(record, RunError, REPEAT)


def _events(folder: Path, position: Position | None) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield the numbered events of a run; where damage can be told, those that were committed."""
    if position is not None and position.has_digests:
        return events_in(folder / RECORD, committed_record(folder, position))
    return read_events(folder / RECORD)


def read_events(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield the numbered events of a record; a last line that was cut by a crash is left out."""
    return events_in(path, read_bytes(path, RunError, REPEAT))


def events_in(path: Path, record: bytes) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield the numbered events of a record with these bytes."""
    lines = record.rstrip(b"\n").split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            damaged = not isinstance(event, dict)
        except (ValueError, RecursionError):
            damaged = True
        if not damaged:
            yield number, event
        elif number < len(lines):
            raise RunError(f"line {number} of {path} is damaged; restore the file or repeat the run")


def _read_object(folder: Path, position: Position | None, name: str) -> dict[str, Any]:
    """Read a file that holds one JSON object."""
    return parse_object(folder / name, read_checked(folder, position, name), RunError, REPEAT)


def _read_preset(folder: Path, position: Position | None) -> dict[str, Any]:
    """Read a preset and make sure that the run can be named and repeated."""
    preset = _read_object(folder, position, PRESET)
    missing = [key for key in ("name", "seed") if key not in preset]
    if missing:
        raise RunError(f"{folder / PRESET} has no {' and no '.join(missing)}; {REPEAT}")
    return preset


def _start_event(event: Mapping[str, Any]) -> StartEvent:
    """Check and type a start event."""
    line = StartLine.model_validate(event)
    if sum(line.task_sizes) != len(line.classes):
        raise ValueError(f"{len(line.classes)} classes in tasks of {sum(line.task_sizes)}")
    return StartEvent(
        time=line.time,
        method=line.method,
        classes=tuple(line.classes),
        task_sizes=tuple(line.task_sizes),
        num_coordinates=line.num_coordinates,
        backbone_hash=line.backbone_hash,
    )


def _phase_event(event: Mapping[str, Any]) -> PhaseEvent:
    """Check and type a phase event."""
    line = PhaseLine.model_validate(event)
    return PhaseEvent(line.task, line.phase, line.trained, tuple(map(_number, line.loss)), line.seconds)


def _task_event(event: Mapping[str, Any]) -> TaskEvent:
    """Check and type a task event."""
    line = TaskLine.model_validate(event)
    accuracy, capacity, parameters = line.accuracy, line.capacity or Pool(), line.parameters or Parameters()
    if len(accuracy.per_task) != line.task + 1:
        raise ValueError(f"{len(accuracy.per_task)} accuracies after task {line.task}")
    return TaskEvent(
        task=line.task,
        seen=_number(accuracy.seen),
        new=_number(accuracy.new),
        first=_number(accuracy.first),
        per_task=tuple(map(_number, accuracy.per_task)),
        capacity_used=capacity.used,
        num_claimed=capacity.claimed,
        num_free=capacity.free,
        learn_seconds=line.seconds.learn,
        evaluate_seconds=line.seconds.evaluate,
        num_stored=parameters.stored,
        passes_per_image=parameters.passes_per_image,
        diagnosis=line.diagnosis or {},
        peak_memory=None if line.memory is None else line.memory.peak,
    )


def _reason(error: ValueError) -> str:
    """Say in a clause why a line is refused."""
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _number(value: float | None) -> float:
    """A float, NaN where JSON holds null."""
    return float("nan") if value is None else value
