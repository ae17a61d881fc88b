"""The lines of a run's record, as far as they are read: anything else in their place is damage."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Figure = float | None
"""A number; JSON holds null where it is none."""


class Line(BaseModel):
    """Values of the type that they have in the file; what nobody reads may be anything."""

    model_config = ConfigDict(strict=True, extra="ignore")


class StartLine(Line):
    """What a run set out to do."""

    time: Seconds
    method: str
    classes: list[str]
    task_sizes: list[Count]
    num_coordinates: Count | None = None
    backbone_hash: str | None = None


class PhaseLine(Line):
    """One training phase of a task."""

    task: Count
    phase: str
    trained: Count | None = None
    loss: list[Figure]
    seconds: Seconds


class Accuracy(Line):
    """Accuracies after a task."""

    seen: Figure
    new: Figure
    first: Figure
    per_task: list[Figure]


class Times(Line):
    """How long a task took."""

    learn: Seconds
    evaluate: Seconds


class Pool(Line):
    """Coordinates that are taken and free."""

    used: Figure = None
    claimed: Count | None = None
    free: Count | None = None


class Parameters(Line):
    """What is stored, and what an answer takes."""

    stored: Count | None = None
    passes_per_image: Count | None = None


class Memory(Line):
    """The most bytes taken."""

    peak: Count | None = None


class TaskLine(Line):
    """What was measured after a task."""

    task: Count
    accuracy: Accuracy
    seconds: Times
    capacity: Pool | None = None
    parameters: Parameters | None = None
    memory: Memory | None = None
    diagnosis: dict[str, Any] | None = None
