"""Where a run stands: checkpoint/position.json names the files that count and tells whether they are whole."""

import hashlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clare.errors import RunError
from clare.files import RESTORE
from clare.plain import short
from clare.record import TaskEvent, events_in
from clare.sealed import SEAL, digest_of, read_bytes, read_object

PRESET, ENVIRONMENT, RECORD = "preset.json", "environment.json", "record.jsonl"
POSITION = "checkpoint/position.json"
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

    @property
    def has_digests(self) -> bool:
        """Whether damage can be told; a run of clare 0.1.0 that has not gone on since has none."""
        return bool(self.files)


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
    missing = [name for name in kind.model_fields if name not in values]
    try:
        position = kind.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise RunError(f"{path} is damaged: {key} is {short(problem['input'])}; {RESTORE}") from None
    if missing:
        raise RunError(f"{path} is damaged: it does not name {', '.join(missing)}; {RESTORE}")
    if checkpoint_files(position) != _expected_files(position) or position.task_bytes > position.record_bytes:
        raise RunError(f"{path} is damaged: what it says of task {position.task} does not fit together; {RESTORE}")
    return Position.model_validate(position.model_dump())


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
    record = _record_bytes(folder, position)
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
    for name in position.files:
        try:
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(f"{folder / name} cannot be read ({error.strerror or error}); {RESTORE}") from None
        check_digest(folder, position, name, found)


def check_digest(folder: Path, position: Position, name: str, found: str) -> None:
    """Refuse a file with another digest than the one it was written with, as far as that is known."""
    if position.files.get(name, found) != found:
        raise RunError(f"{folder / name} is damaged: its content is not what the run wrote; {RESTORE}")


def read_checked(folder: Path, position: Position | None, name: str) -> bytes:
    """Read a file of a run, which must be what was written as far as that is known."""
    data = read_bytes(folder / name, RunError, RESTORE)
    if position is not None:
        check_digest(folder, position, name, digest_of(data))
    return data


def committed_record(folder: Path, position: Position) -> bytes:
    """Return the part of the record that counts, which must be what was written."""
    record = _record_bytes(folder, position)
    if position.has_digests and digest_of(record) != position.record_digest:
        raise RunError(f"{folder / RECORD} is damaged: its content is not what the run wrote; {RESTORE}")
    return record


def _record_bytes(folder: Path, position: Position) -> bytes:
    """Return as many bytes of the record as count."""
    record = read_bytes(folder / RECORD, RunError, RESTORE)
    if len(record) < position.record_bytes:
        raise RunError(
            f"the record of {folder} has {len(record)} bytes where the checkpoint counts {position.record_bytes}; "
            "restore the file or choose another --out"
        )
    return record[: position.record_bytes]
