"""The base of every settings class, and how raw values become one."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from clare.errors import SettingsError, nearest


class Settings(BaseModel):
    """Frozen, typed, bounded values; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false where a number is wanted; they would count as 1 and 0."""
        kinds = {kind.annotation for kind in kinds_of(cls.model_fields[str(info.field_name)])}
        if isinstance(value, bool) and kinds & {int, float, int | None, float | None}:
            raise ValueError("it takes a number, not true or false")
        return value


S = TypeVar("S", bound=Settings)


def build_settings(kind: type[S], values: Mapping[str, Any], where: str) -> S:
    """Build settings from raw values; `where` is the dotted key under which the user wrote them."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_first_problem(kind, error, where)) from None


def kinds_of(field: FieldInfo) -> list[FieldInfo]:
    """Return what a field takes one by one: a number within bounds or one of some words, or the field itself."""
    members = get_args(field.annotation)
    if any(get_origin(member) is Annotated for member in members):
        return [FieldInfo.from_annotation(member) for member in members]
    return [field]


def _first_problem(kind: type[Settings], error: ValidationError, where: str) -> str:
    """Say in one sentence which key is wrong, what came and what is allowed."""
    problem = _joined(kind, error.errors())
    path = [str(part) for part in problem["loc"]]
    key = ".".join([where, *path] if where else path)
    owner = _owner(kind, path[:-1])
    if problem["type"] == "extra_forbidden" and owner is not None:
        allowed = sorted(owner.model_fields)
        return f"there is no setting '{key}'{nearest(path[-1], allowed)}; allowed here: {', '.join(allowed)}"
    if problem["type"] == "missing":
        return f"the setting '{key}' is missing; give it a value"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error" and isinstance(problem["input"], Mapping):
        return "the settings" + (f" under '{key}'" if key else "") + f" cannot be used: {message}"
    return f"the setting '{key}' got {problem['input']!r}; {message}"


def _joined(kind: type[Settings], problems: list[ErrorDetails]) -> ErrorDetails:
    """Return the first problem; where a value is none of the kinds that a field takes, with what each of them says."""
    first = problems[0]
    path = list(first["loc"][:-1])
    field = _field(kind, [str(part) for part in path])
    if field is None or _settings_of(field) is not None:
        return first
    said = [problem["msg"] for problem in problems if list(problem["loc"][:-1]) == path]
    others = [message.removeprefix("Input should be ") for message in said[1:]]
    return {**first, "loc": tuple(path), "msg": ", or ".join(dict.fromkeys([said[0], *others]))}


def _field(kind: type[Settings], path: list[str]) -> FieldInfo | None:
    """Follow a path of field names to the field that it ends with."""
    owner = _owner(kind, path[:-1]) if path else None
    return owner.model_fields.get(path[-1]) if owner else None


def _owner(kind: type[Settings], path: list[str]) -> type[Settings] | None:
    """Follow a path of field names to the settings class that holds the last one."""
    for part in path:
        field: FieldInfo | None = kind.model_fields.get(part)
        inner = _settings_of(field) if field else None
        if inner is None:
            return None
        kind = inner
    return kind


def _settings_of(field: FieldInfo) -> type[Settings] | None:
    """Return the class of the settings that a field holds, if it does."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None
