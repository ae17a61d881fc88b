"""Read what a run has written: its preset, its environment, its record and its predictions."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from clare.errors import RunError
from clare.identity import head_label
from clare.metrics.bootstrap import Evaluations
from clare.position import (
    ENVIRONMENT,
    POSITION,
    PRESET,
    RECORD,
    Position,
    committed,
    predictions_file,
    read_checked,
    read_position,
)
from clare.record import REPEAT, EndEvent, PhaseEvent, StartEvent, TaskEvent, events_in, read_events
from clare.sealed import parse_object, read_bytes


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

    def same_backbone(self, other: "RunRecord") -> bool:
        """Whether both runs stand on the same weights, as far as both have recorded them."""
        hashes = (self.start.backbone_hash, other.start.backbone_hash)
        return None in hashes or hashes[0] == hashes[1]


def read_run(folder: Path) -> RunRecord:
    """Read a run folder, also one whose run was killed."""
    missing = [name for name in (PRESET, ENVIRONMENT, RECORD) if not (folder / name).is_file()]
    if missing:
        raise RunError(f"{folder} is no run, it has no {', '.join(missing)}; give a folder that `clare train` wrote")
    position = read_position(folder) if (folder / POSITION).exists() else None
    record = folder / RECORD
    preset, environment = (
        parse_object(folder / name, read_checked(folder, position, name), RunError, REPEAT)
        for name in (PRESET, ENVIRONMENT)
    )
    unnamed = [key for key in ("name", "seed") if key not in preset]
    if unnamed:
        raise RunError(f"{folder / PRESET} has no {' and no '.join(unnamed)}; {REPEAT}")
    start: StartEvent | None = None
    finished = False
    # A resumed run repeats the events of the task it was stopped in: the last telling counts.
    phases: dict[tuple[int, str], PhaseEvent] = {}
    tasks: dict[int, TaskEvent] = {}
    # Where damage can be told, those events count that were committed.
    counting = None if position is None or not position.has_digests else committed(folder, position, RECORD)
    for event in read_events(record) if counting is None else events_in(record, counting):
        match event:
            case StartEvent():
                start, finished = event, False
            case PhaseEvent():
                phases[event.task, event.phase] = event
            case TaskEvent():
                tasks[event.task] = event
            case EndEvent():
                finished = True
    if start is None:
        raise RunError(f"the run in {folder} has not started, its {RECORD} has no start event; wait or repeat the run")
    if sorted(tasks) != list(range(len(tasks))) or len(tasks) > len(start.task_sizes):
        raise RunError(
            f"{folder / RECORD} tells of the tasks {sorted(tasks)}, not of the first of {len(start.task_sizes)}; "
            "restore the file or repeat the run"
        )
    return RunRecord(
        folder=folder.resolve(),
        preset=preset,
        environment=environment,
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
            what = f"{path} is a file" if path.exists() else f"there is no folder {path}"
            raise RunError(f"{what}; give a run, or a folder that holds runs")
        records = [] if (path / RECORD).exists() else sorted(path.glob(f"*/{RECORD}"))
        # A run has started once its record has a whole line.
        inner = [each.parent for each in records if each.is_file() and b"\n" in read_bytes(each, RunError, REPEAT)]
        folders.update(dict.fromkeys(folder.resolve() for folder in inner or [path]))
    if not folders:
        raise RunError("no folder of a run was given; give one or more folders that `clare train` wrote")
    return [read_run(folder) for folder in folders]


def reproduce_command(run: RunRecord) -> str:
    """The command line that repeats a run."""
    method = run.preset.get("method")
    # A method of one's own is found by its file and class, not by the name it gives itself.
    given = str(method.get("name", run.method)) if isinstance(method, dict) else run.method
    words = ["clare", "train", str(run.preset["name"]), "--method", given, "--seed", str(run.preset["seed"])]
    for override in run.preset.get("overrides") or []:
        words += ["--set", str(override)]
    return shlex.join(words)
