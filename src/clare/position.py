"""Where a run stands: checkpoint/position.json names the files that count and tells whether they are whole.

What grows from task to task stands in checkpoint/finished.jsonl, a line for each task, and in checkpoint/rows.bin; the
position counts their bytes, so that a commit writes no more after many tasks than after few.
"""

import hashlib
import json
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from clare.errors import RunError
from clare.files import RESTORE
from clare.plain import short
from clare.record import TaskEvent, events_in
from clare.sealed import SEAL, digest_of, read_bytes, read_object

PRESET, ENVIRONMENT, RECORD = "preset.json", "environment.json", "record.jsonl"
POSITION = "checkpoint/position.json"
FINISHED, ROWS = "checkpoint/finished.jsonl", "checkpoint/rows.bin"
NO_BYTES = digest_of(b"")

Count = Annotated[int, Field(ge=0)]
FileName = Annotated[
    str, Field(pattern=r"^(preset\.json|environment\.json|(predictions|checkpoint)/[a-z0-9-]+\.safetensors)$")
]
"""A file of the run that carries a digest."""


class Epoch(BaseModel):
    """The epoch from which a step goes on."""

    model_config = ConfigDict(strict=True, extra="forbid")
    step: Count
    epoch: Count
    file: str


class OldPosition(BaseModel):
    """A position without digests, as clare 0.1.0 wrote it."""

    model_config = ConfigDict(strict=True, extra="forbid")
    task: Count = 0
    learner: str | None = None
    structure: dict[str, Any] | None = None
    record_bytes: Count = 0
    task_bytes: Count = 0
    steps: list[str] = []
    epoch: Epoch | None = None
    ended: bool = False


class Position(OldPosition):
    """How far a run is, and the digests of its files and of the lines of its record that count."""

    files: dict[FileName, str] = {}
    record_digest: str = NO_BYTES
    task_digest: str = NO_BYTES
    finished_bytes: Count = 0
    finished_digest: str = NO_BYTES
    rows_bytes: Count = 0
    rows_digest: str = NO_BYTES
    lists: dict[str, Count] = {}
    """How much counts of the lists of the structure that stand in FINISHED."""
    outdated: list[str] = []
    """Tensors whose rows are in ROWS and count no longer."""
    _finished: "Finished" = PrivateAttr(default_factory=lambda: Finished())

    @property
    def finished(self) -> "Finished":
        """What the lines of FINISHED say together."""
        return self._finished

    @property
    def digests(self) -> Mapping[str, str]:
        """The digests of all files that count."""
        return ChainMap(self.files, self._finished.files)

    @property
    def whole_structure(self) -> dict[str, Any]:
        """The structure of the learner, with the lists that grow from task to task."""
        grown = {key: self._finished.structure.get(key, [])[:number] for key, number in self.lists.items()}
        return {**grown, **(self.structure or {})}

    @property
    def has_digests(self) -> bool:
        """Whether damage can be told; a run of clare 0.1.0 that has not gone on since has none."""
        return bool(self.files)


class Line(BaseModel):
    """What a finished task leaves that never changes: files, what came to lists of the structure, bytes of ROWS."""

    model_config = ConfigDict(strict=True, extra="forbid")
    files: dict[FileName, str]
    structure: dict[str, list[Any]]
    rows: Count


@dataclass
class Finished:
    """What all finished tasks have left."""

    files: dict[str, str] = field(default_factory=dict)
    structure: dict[str, list[Any]] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Take over what one more task has left."""
        self.files.update(line.files)
        for key, more in line.structure.items():
            self.structure.setdefault(key, []).extend(more)
        self.rows.append(line.rows)


LATER = {"finished_bytes", "finished_digest", "rows_bytes", "rows_digest", "lists", "outdated"}
"""What positions of older releases do not name, any of it."""


def predictions_file(task: int) -> str:
    """Return the file of what was predicted after a task."""
    return f"predictions/task-{task:04d}.safetensors"


def checkpoint_files(position: OldPosition) -> list[str]:
    """Return the names of the files in checkpoint/ that make up the state."""
    epoch = position.epoch
    names = [position.learner, *position.steps, epoch.file if epoch else None]
    return [name for name in names if name]


def read_position(folder: Path) -> Position:
    """Read where a run stands; what contradicts itself is refused, and old runs have no digests."""
    path = folder / POSITION
    values = read_object(path, RunError, RESTORE)
    is_sealed = values.pop(SEAL, None) is not None
    kind = Position if is_sealed else OldPosition
    optional = set() if LATER & values.keys() else LATER
    missing = [name for name in kind.model_fields if name not in {*values, *optional}]
    try:
        position = kind.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        if is_sealed and problem["type"] == "extra_forbidden":
            raise RunError(f"{path} comes from a newer CLARE: it names {key}; go on with that release") from None
        raise RunError(f"{path} is damaged: {key} is {short(problem['input'])}; {RESTORE}") from None
    if missing:
        raise RunError(f"{path} is damaged: it does not name {', '.join(missing)}; {RESTORE}")
    if checkpoint_files(position) != _expected_files(position) or position.task_bytes > position.record_bytes:
        raise RunError(f"{path} is damaged: what it says of task {position.task} does not fit together; {RESTORE}")
    position = Position.model_validate(position.model_dump())
    for line in committed(folder, position, FINISHED).splitlines():
        try:
            position.finished.add(Line.model_validate(json.loads(line)))
        except ValueError as error:
            raise RunError(f"{folder / FINISHED} is damaged: it holds a line that is none; {RESTORE}") from error
    if len(position.finished.rows) > position.task or sum(position.finished.rows) != position.rows_bytes:
        raise RunError(f"{path} is damaged: what it counts is not what {FINISHED} tells of; {RESTORE}")
    return position


def _expected_files(position: OldPosition) -> list[str]:
    """Return the names that the files in checkpoint/ have where a run stands so."""
    task, epoch = f"task-{position.task:04d}", position.epoch
    steps = [f"{task}-step-{step:02d}.safetensors" for step, name in enumerate(position.steps) if name]
    epochs = [f"{task}-step-{epoch.step:02d}-epoch-{epoch.epoch:04d}.safetensors"] if epoch else []
    return [*([f"{task}.safetensors"] if position.task else []), *steps, *epochs]


def upgraded(folder: Path, position: Position) -> Position:
    """Give the position of an old run the digests of its files as they are, if they agree on how far it is."""
    if position.has_digests:
        return position
    record = committed(folder, position, RECORD)
    told = [event.task for event in events_in(folder / RECORD, record) if isinstance(event, TaskEvent)]
    if told != list(range(min(position.task, len(told) + 1))):
        raise RunError(
            f"{folder / POSITION} counts {position.task} finished tasks where {RECORD} tells of {len(told)}; {RESTORE}"
        )
    names = [PRESET, ENVIRONMENT, *map(predictions_file, range(position.task))]
    names += [f"checkpoint/{name}" for name in checkpoint_files(position)]
    return position.model_copy(
        update={
            "files": {name: digest_of(read_bytes(folder / name, RunError, RESTORE)) for name in names},
            "record_digest": digest_of(record),
            "task_digest": digest_of(record[: position.task_bytes]),
        }
    )


def check_files(folder: Path, position: Position) -> None:
    """Refuse a run of which a file that counts is missing or damaged."""
    for name in position.digests:
        try:
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(f"{folder / name} cannot be read ({error.strerror or error}); {RESTORE}") from None
        check_digest(folder, position, name, found)


def check_digest(folder: Path, position: Position, name: str, found: str) -> None:
    """Refuse a file with another digest than the one it was written with, as far as that is known."""
    if position.digests.get(name, found) != found:
        raise RunError(f"{folder / name} is damaged: its content is not what the run wrote; {RESTORE}")


def read_checked(folder: Path, position: Position | None, name: str) -> bytes:
    """Read a file of a run, which must be what was written as far as that is known."""
    data = read_bytes(folder / name, RunError, RESTORE)
    if position is not None:
        check_digest(folder, position, name, digest_of(data))
    return data


def committed(folder: Path, position: Position, name: str) -> bytes:
    """Return the part of a file that grows at its end which counts, and which must be what was written."""
    counted = {
        RECORD: (position.record_bytes, position.record_digest),
        FINISHED: (position.finished_bytes, position.finished_digest),
        ROWS: (position.rows_bytes, position.rows_digest),
    }
    num_bytes, digest = counted[name]
    data = read_bytes(folder / name, RunError, RESTORE) if num_bytes else b""
    if len(data) < num_bytes:
        what = f"the record of {folder}" if name == RECORD else folder / name
        raise RunError(
            f"{what} has {len(data)} bytes where the checkpoint counts {num_bytes}; "
            "restore the file or choose another --out"
        )
    if position.has_digests and digest_of(data[:num_bytes]) != digest:
        raise RunError(f"{folder / name} is damaged: its content is not what the run wrote; {RESTORE}")
    return data[:num_bytes]
