"""What the service answers, for its documentation at /docs."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from clare.model.records import Answer, Change, ClassReport


class Problem(BaseModel):
    """Every refusal."""

    detail: str = Field(description="One sentence: what is wrong and what to do.")


class Health(BaseModel):
    """That the server answers, and with which model."""

    status: Literal["ok"]
    version: int


class Prediction(BaseModel):
    """The answers to all images of a request, from one version of the model."""

    version: int
    answers: list[Answer]


class KnownClass(BaseModel):
    """A class the model knows."""

    name: str
    task: int
    taught_at: str
    num_images: int
    held_back: ClassReport | None = Field(description="None where no picture of it was held back.")


class CapacityAnswer(BaseModel):
    """How full the model is."""

    num_coordinates: int
    num_free: int
    used: float = Field(description="Share of the coordinates that tasks have claimed.")


class ModelAnswer(BaseModel):
    """All about the model in use."""

    version: int
    name: str
    is_drawing_model: bool
    image_size: int
    channels: int
    classes: list[KnownClass]
    capacity: CapacityAnswer | None
    tasks_left: int | None
    history: list[Change]
    needs_token: bool
    learning: str | None = Field(description="The job that is running or waiting, if any.")


class Accepted(BaseModel):
    """A job that was queued."""

    job: str


class JobAnswer(BaseModel):
    """How far a job is."""

    id: str
    state: Literal["waiting", "running", "done", "failed"]
    progress: float = Field(ge=0, le=1)
    step: str
    seconds_left: float | None
    error: str | None
    change: Change | None


class Undone(BaseModel):
    """What was taken back."""

    change: Change


def _form(properties: dict[str, Any], choices: list[list[str]]) -> dict[str, Any]:
    """Describe a multipart body that must have all fields of one of the choices."""
    schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "anyOf": [{"required": required} for required in choices],
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


_FILE = {"type": "string", "format": "binary"}
_IMAGES = {"type": "array", "items": _FILE, "minItems": 1}
_LABELS = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}, "minItems": 1}

PREDICT_FORM = _form({"images": _IMAGES}, [["images"]])
LEARN_FORM = _form(
    {
        "archive": {**_FILE, "description": "A zip with one folder of images per class."},
        "images": {**_IMAGES, "description": "Images, instead of an archive."},
        "labels": {**_LABELS, "description": "The class of each image, in the same order."},
    },
    [["archive"], ["images", "labels"]],
)
