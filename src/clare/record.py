"""The record of a run: one line of JSON for each event, written by the engine and read by everybody else."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from clare.errors import RunError
from clare.sealed import read_bytes

REPEAT = "restore the file or repeat the run"
"""What to do about a damaged file."""

Number = Annotated[float, Field(strict=True), BeforeValidator(lambda value: math.nan if value is None else value)]
"""A float, NaN where JSON holds null."""
Count = Annotated[int, Field(strict=True, ge=0)]
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True)]


def recorded(place: str, text: str, **options: Any) -> Any:
    """Declare a field by its place in the line, with a dot between a part's name and its field, and what it is."""
    return Field(validation_alias=AliasPath(*place.split(".")), description=text, **options)


def maybe(place: str, text: str) -> Any:
    """Declare a field that is null where it does not apply, and missing in lines of older versions."""
    return recorded(place, text, default=None)


class Event(BaseModel):
    """Something that a run tells of itself."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)
    kind: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _check_parts(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Refuse a part that has no fields, and take null for what was not recorded."""
        for part in {outer for outer, *inner in cls.places().values() if inner}:
            if not isinstance(values.get(part) or {}, dict):
                raise ValueError(f"{part} is {values[part]!r}")
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def places(cls) -> dict[str, tuple[str, ...]]:
        """Where each field stands in the line."""
        aliases = {name: field.validation_alias for name, field in cls.model_fields.items()}
        return {
            name: tuple(map(str, alias.path)) if isinstance(alias, AliasPath) else (name,)
            for name, alias in aliases.items()
        }

    def as_json(self) -> dict[str, Any]:
        """The values as the line has them, null for what is not a number."""
        line: dict[str, Any] = {}
        for name, (*outer, last) in self.places().items():
            part = line
            for key in outer:
                part = part.setdefault(key, {})
            value = getattr(self, name)
            is_row = isinstance(value, tuple)
            part[last] = [_null_for_nan(each) for each in value] if is_row else _null_for_nan(value)
        return line


class StartEvent(Event):
    """What a run set out to do, as its first line."""

    kind = "start"
    time: Seconds = recorded("time", "when the run began, in seconds since 1970")
    method: str = recorded("method", "the method's name")
    classes: tuple[str, ...] = recorded("classes", "the names of all classes in the order in which they are met")
    task_sizes: tuple[Count, ...] = recorded("task_sizes", "how many classes each task has")
    num_coordinates: Count | None = maybe("num_coordinates", "coordinates of the adapter, which tasks claim")
    backbone_hash: str | None = maybe("backbone_hash", "digest of the backbone's weights")
    is_told_task: bool = recorded("told_task", "whether each test image comes with its task", default=False)
    training_bytes: Count | None = maybe(
        "training_bytes", "bytes of the training images' pixels, no image counted larger than the backbone sees it"
    )
    num_skipped: Count = recorded("num_skipped_images", "images that could not be read and were left out", default=0)

    @model_validator(mode="after")
    def _check_sizes(self) -> "StartEvent":
        """Refuse tasks that are not filled by the classes."""
        if sum(self.task_sizes) != len(self.classes):
            raise ValueError(f"{len(self.classes)} classes in tasks of {sum(self.task_sizes)}")
        return self


class PhaseEvent(Event):
    """One training phase of one task."""

    kind = "phase"
    task: Count = recorded("task", "the task, from 0")
    phase: str = recorded("phase", "the phase's name")
    epochs: Count | None = maybe("epochs", "how many epochs it ran")
    num_trained: Count | None = maybe("trained", "how many numbers it trained")
    loss: tuple[Number, ...] = recorded("loss", "the mean loss of each epoch")
    seconds: Seconds = recorded("seconds", "how long it took")


class TaskEvent(Event):
    """What was measured after one task, on the test images of the classes seen so far."""

    kind = "task"
    task: Count = recorded("task", "the task, from 0")
    seen: Number = recorded("accuracy.seen", "accuracy over all classes seen so far, between 0 and 1 as all accuracies")
    new: Number = recorded("accuracy.new", "accuracy on the newest task's classes")
    first: Number = recorded("accuracy.first", "accuracy on the first task's classes")
    per_task: tuple[Number, ...] = recorded("accuracy.per_task", "accuracy on each task so far: a row of the matrix R")
    given: Share | None = maybe(
        "accuracy.task_given",
        "accuracy over all classes seen so far, each image set against the classes of its task alone",
    )
    given_per_task: tuple[Number, ...] | None = maybe("accuracy.per_task_given", "the same on each task so far")
    task_right: Share | None = maybe(
        "accuracy.task_right",
        "share of the images whose task is inferred rightly: that of the predicted class, unless the method infers it "
        "otherwise",
    )
    capacity_used: Share | None = maybe("capacity.used", "share of the coordinates that tasks have claimed")
    num_claimed: Count | None = maybe("capacity.claimed", "coordinates that this task claimed")
    num_free: Count | None = maybe("capacity.free", "coordinates that no task has claimed")
    diagnosis: Mapping[str, Any] = recorded("diagnosis", "what the method says about itself", default={})
    learn_seconds: Seconds = recorded("seconds.learn", "how long learning the task took")
    evaluate_seconds: Seconds = recorded("seconds.evaluate", "how long evaluating took")
    peak_memory: Count | None = maybe(
        "memory.peak", "the most bytes taken: by tensors on a GPU during the task, or by the process so far"
    )
    num_stored: Count | None = maybe(
        "parameters.stored", "numbers kept beside the backbone, a bit of a mask as a 32nd, pictures aside"
    )
    num_pictures: Count | None = maybe("pictures.kept", "training pictures that the method keeps of the tasks so far")
    picture_bytes: Count | None = maybe("pictures.bytes", "bytes of their pixels")
    passes_per_image: Count | None = maybe("parameters.passes_per_image", "passes through the backbone for one image")

    @model_validator(mode="after")
    def _check_row(self) -> "TaskEvent":
        """Refuse a row of the accuracy matrix that is not of this task."""
        for row in (self.per_task, self.given_per_task):
            if row is not None and len(row) != self.task + 1:
                raise ValueError(f"{len(row)} accuracies after task {self.task}")
        return self

    @property
    def seconds(self) -> float:
        """Time taken to learn and evaluate the task."""
        return self.learn_seconds + self.evaluate_seconds


class NoticeEvent(Event):
    """Something that the user was told."""

    kind = "notice"
    task: Count = recorded("task", "the task, from 0")
    text: str = recorded("text", "the sentence")


class EndEvent(Event):
    """The run came to its end."""

    kind = "end"
    time: Seconds = recorded("time", "when it ended, in seconds since 1970")


EVENTS: dict[str, type[Event]] = {
    each.kind: each for each in (StartEvent, PhaseEvent, TaskEvent, NoticeEvent, EndEvent)
}


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a record; a last line that was cut by a crash is left out."""
    return events_in(path, read_bytes(path, RunError, REPEAT))


def events_in(path: Path, record: bytes) -> Iterator[Event]:
    """Yield the events of what was read of a record; kinds that this version does not know are left out."""
    lines = record.rstrip(b"\n").split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            if number < len(lines):
                raise RunError(f"line {number} of {path} is damaged; {REPEAT}")
        elif kind := EVENTS.get(str(values.get("event"))):
            yield _event(kind, path, number, values)


def _event(kind: type[Event], path: Path, number: int, values: dict[str, Any]) -> Event:
    """Check and type one line."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        reason = f"{where}: {problem['msg']}" if where else problem["msg"]
        raise RunError(f"line {number} of {path} is no valid {kind.kind} event ({reason}); repeat the run") from None


def _null_for_nan(value: Any) -> Any:
    """None in place of what is not a number, which JSON cannot hold."""
    return None if isinstance(value, float) and math.isnan(value) else value
