"""What a model folder says, tried before it is believed: a sentence for values that cannot be a model's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from clare.errors import ModelError
from clare.model.records import Change, Kind, class_reports, standing
from clare.plain import is_plain, short

RESTORE = "restore the folder from a copy"
"""What to do about a damaged file of a model folder."""


def _own_file(name: str) -> str:
    """Take the name of a file of the folder itself."""
    if not name or Path(name).name != name:
        raise ValueError("it is no name of a file in the folder")
    return name


Count = Annotated[int, Field(ge=0)]
FileName = Annotated[str, AfterValidator(_own_file)]


class Values(BaseModel):
    """Values that are what they are, none turned into another type."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Open(Values):
    """Values among others that are read elsewhere, or by other releases."""

    model_config = ConfigDict(extra="allow")


class MethodValues(Open):
    """The method and its settings."""

    name: str


class Structure(Open):
    """The classes of every task, and what else a method needs."""

    tasks: list[list[str]]


class TaughtClass(Values):
    """A class, the task it came with, when, and from how many pictures."""

    name: str
    task: int
    taught_at: str
    num_images: Count
    kind: Annotated[str, Field(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64))$")] | None = None


class Calibration(Open):
    """The curve of being unknown and the scale of probabilities."""

    slope: float
    offset: float
    threshold: float
    num_pairs: Count
    scale: float = 1.0
    by: Literal["logit", "distance", "contrast"] = "logit"


class StateValues(Values):
    """What there is to say about a model."""

    method: MethodValues
    seed: int
    structure: Structure
    backbone: dict[str, Any] | None
    backbone_hash: str
    transforms: dict[str, Any]
    tensors: FileName
    classes: list[TaughtClass]
    calibration: Calibration | None


class Measured(Open):
    """How many held-back pictures of a class were named rightly."""

    num_correct: Count
    num_held_back: Count
    is_estimate: bool = False


class Report(Open):
    """What a change says of itself."""

    classes: dict[str, Measured] = {}
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    num_held_back: Count = 0
    undone: Count = 0
    pictures: list[str] = []


class ChangeValues(Values):
    """One entry of the history."""

    number: int
    kind: Kind
    at: str
    classes: list[str]
    report: Report


class KeptState(Values):
    """The files of a state before a change."""

    state: FileName
    tensors: FileName


class HistoryValues(Values):
    """How a model came about, and what can be taken back."""

    version: int
    history: list[ChangeValues]
    kept: list[KeptState]
    num_kept: Annotated[int, Field(ge=1)]


def checked_state(path: Path, state: Any) -> dict[str, Any]:
    """Return a state whose values can be a model's."""
    if not isinstance(state, dict):
        raise ModelError(f"{path} holds a {type(state).__name__} in place of an object; {RESTORE}")
    _check(path, state, StateValues)
    return state


def checked_history(
    path: Path, values: Mapping[str, Any]
) -> tuple[int, list[dict[str, Any]], list[dict[str, str]], int]:
    """Return version, history, kept states and their most, if they can be a model's."""
    own = {key: value for key, value in values.items() if key in HistoryValues.model_fields}
    _check(path, own, HistoryValues)
    try:
        history = [Change(**{**each, "classes": tuple(each["classes"])}) for each in values["history"]]
        class_reports(history)
    except (IndexError, KeyError) as error:
        raise ModelError(f"{path} is damaged: `history` cannot be used ({error!r}); {RESTORE}") from error
    if len(values["kept"]) > len(standing(history)):
        raise ModelError(f"{path} names more states before changes than changes; {RESTORE}")
    return values["version"], values["history"], values["kept"], values["num_kept"]


def _check(path: Path, values: Mapping[str, Any], kind: type[Values]) -> None:
    """Refuse values that are not what their keys say, and texts that cannot be shown."""
    missing = [key for key in kind.model_fields if key not in values]
    if missing:
        raise ModelError(f"{path} does not name {missing[0]}; {RESTORE}")
    for key, value in values.items():
        try:
            odd = next((text for text in _texts(value) if not is_plain(text)), None)
        except RecursionError:
            odd = value
        if odd is not None:
            raise ModelError(f"{path} is damaged: `{key}` cannot hold {short(odd)}; {RESTORE}")
    try:
        kind.model_validate(values)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise ModelError(f"{path} is damaged: `{key}` cannot be {short(values.get(key))}; {RESTORE}") from None


def _texts(value: Any) -> Iterator[str]:
    """Yield every text within a value of JSON, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
