"""The base of every settings class, and how raw values become one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from annotated_types import Lt
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from clare.errors import SettingsError, nearest
from clare.upgrade import RENAMED, RENAMED_KINDS

TAG = "kind"
"""The setting that says which of several tables of settings another one is."""


Acts = Mapping[str, Mapping[str, Sequence[Any] | Lt]]
"""Settings that do not always act, each with values of others, under dotted keys, at which it does."""


class Settings(BaseModel):
    """Frozen, typed, bounded values; unknown keys are refused."""

    acts: ClassVar[Acts] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    """What a class has for settings that it inherits, where that is another value than theirs."""
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Take over the class's own defaults."""
        super().__pydantic_init_subclass__(**kwargs)
        for key, value in vars(cls).get("defaults", {}).items():
            cls.model_fields[key].default = value
        cls.model_rebuild(force="defaults" in vars(cls))

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false where a number is wanted; they would count as 1 and 0."""
        kinds = {kind.annotation for kind in kinds_of(cls.model_fields[str(info.field_name)])}
        if isinstance(value, bool) and kinds & {int, float, int | None, float | None}:
            raise ValueError("it takes a number, not true or false")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_kind(cls, value: object, info: ValidationInfo) -> object:
        """Make a table of one of several kinds; what it leaves out is as in the field's default, where both have it."""
        field = cls.model_fields[str(info.field_name)]
        tables = tables_of(field)
        if not tables or isinstance(value, Settings):
            return value
        if not isinstance(value, Mapping):
            raise ValueError("it takes a table of settings")
        laid_over = laid(field.default.model_dump(), value, tables)
        kind, known = str(laid_over[TAG]), {key for table in tables.values() for key in table.model_fields}
        if kind not in tables:
            now = RENAMED_KINDS.get(kind)
            remedy = f"it is called {now} now" if now else f"it is {_either(tables)}"
            raise _refusal(TAG, kind, f"{remedy}{'' if now else nearest(kind, tables)}")
        foreign = [key for key in value if key in known - tables[kind].model_fields.keys()]
        if foreign and value.keys() <= known:
            owners = [name for name, table in tables.items() if foreign[0] in table.model_fields]
            raise _refusal(foreign[0], value[foreign[0]], f"it belongs to {TAG} = {_either(owners)}, this is {kind}")
        return tables[kind].model_validate(laid_over)


S = TypeVar("S", bound=Settings)


def idle(settings: Settings, asked: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Yield the settings among those asked for that do nothing beside the others, each with when it would act."""
    for key in (key for key in asked if key in type(settings).model_fields):
        for other, allowed in settings.acts.get(key, {}).items():
            value: Any = settings
            for name in other.split("."):
                value = getattr(value, name, None)
            # A kind of head that has no such choice has made it for good.
            if value is not None and not (value < allowed.lt if isinstance(allowed, Lt) else value in allowed):
                yield f"{where}{key}", f"it acts where {condition(settings, key, where)}"
                break
        else:
            if isinstance(inner := getattr(settings, key), Settings) and isinstance(asked[key], Mapping):
                yield from idle(inner, asked[key], f"{where}{key}.")


def condition(settings: Settings | type[Settings], key: str, where: str) -> str:
    """Say in words when a setting acts; nothing where it always does."""
    fields = settings.model_fields if isinstance(settings, type) else type(settings).model_fields
    parts = [(other, values) for other, values in settings.acts.get(key, {}).items() if other.split(".")[0] in fields]
    return " and ".join(f"{where}{other} is {_allowed(fields.get(other), values)}" for other, values in parts)


def _allowed(field: FieldInfo | None, values: Sequence[Any] | Lt) -> str:
    """Say which values are allowed, as --set takes them, or which one is not where that is shorter."""
    if isinstance(values, Lt):
        return f"below {values.lt}"
    others = [value for value in get_args(field.annotation) if value not in values] if field else []
    if len(others) == 1 < len(values):
        return f"not {others[0]}"
    return _either(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


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


def tables_of(field: FieldInfo) -> dict[str, type[Settings]]:
    """Return the settings classes of which a field holds one, by the kind that names each; none of other fields."""
    members = get_args(field.annotation) or (field.annotation,)
    tables = [each for each in members if isinstance(each, type) and issubclass(each, Settings)]
    tags = [get_args(table.model_fields[TAG].annotation) for table in tables if TAG in table.model_fields]
    is_tagged = len(tags) == len(members) and all(len(tag) == 1 for tag in tags)
    return {tag[0]: table for tag, table in zip(tags, tables, strict=True)} if is_tagged else {}


def laid(base: Mapping[str, Any], over: Mapping[str, Any], tables: Mapping[str, type[Settings]]) -> dict[str, Any]:
    """Lay a table over another; where it names another kind, the old one's own settings are dropped."""
    old, new = (tables.get(str(kind)) for kind in (base[TAG], over.get(TAG, base[TAG])))
    dropped = old.model_fields.keys() - new.model_fields.keys() if old and new else set()
    return {**{key: value for key, value in base.items() if key not in dropped}, **over}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay nested values over others."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def overlaid(kind: type[Settings], base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay values of settings over others; a table of another kind keeps what both kinds have."""
    result = merge(base, over)
    for key, field in kind.model_fields.items():
        tables, old, new = tables_of(field), base.get(key, {}), over.get(key)
        if tables and isinstance(old, Mapping) and isinstance(new, Mapping):
            result[key] = laid({TAG: getattr(field.default, TAG), **old}, new, tables)
    return result


def _first_problem(kind: type[Settings], error: ValidationError, where: str) -> str:
    """Say in one sentence which key is wrong, what came and what is allowed."""
    problems = error.errors()
    # A name of earlier days says more than what follows from it.
    old = [each for each in problems if ".".join(map(str, each["loc"])) in RENAMED]
    problem = old[0] if old else _joined(kind, problems)
    path, came = [str(part) for part in problem["loc"]], problem["input"]
    key = ".".join([where, *path] if where else path)
    if problem["type"] == "extra_forbidden":
        return _unknown(kind, path, key, where)
    if problem["type"] == "missing":
        return f"the setting '{key}' is missing; give it a value"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error" and isinstance(came, Mapping):
        return "the settings" + (f" under '{key}'" if key else "") + f" cannot be used: {message}"
    return f"the setting '{key}' got {came!r}; {message}"


def _either(words: Iterable[str]) -> str:
    """Join words by commas, the last two by "or"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _refusal(key: str, came: object, remedy: str) -> ValidationError:
    """Return an error at one key of a table."""
    problem = PydanticCustomError("table", remedy)
    return ValidationError.from_exception_data("table", [{"type": problem, "loc": (key,), "input": came}])


def _unknown(kind: type[Settings], path: list[str], key: str, where: str) -> str:
    """Say of a key that does not exist what it is called now, or what is allowed in its place."""
    now = RENAMED.get(".".join(path))
    if now is not None:
        return f"there is no setting '{key}' any more; it is called '{where}{'.' if where else ''}{now}' now"
    allowed = sorted({name for owner in _owners(kind, path[:-1]) for name in owner.model_fields})
    return f"there is no setting '{key}'{nearest(path[-1], allowed)}; allowed here: {', '.join(allowed)}"


def _joined(kind: type[Settings], problems: list[ErrorDetails]) -> ErrorDetails:
    """Return the first problem; where a value is none of the kinds that a field takes, with what each of them says."""
    first = problems[0]
    path = list(first["loc"][:-1])
    names = [str(part) for part in path]
    fields = [owner.model_fields.get(names[-1]) for owner in _owners(kind, names[:-1])] if names else []
    field = next(filter(None, fields), None)
    if field is None or settings_of(field):
        return first
    said = [problem["msg"] for problem in problems if list(problem["loc"][:-1]) == path]
    others = [message.removeprefix("Input should be ") for message in said[1:]]
    return {**first, "loc": tuple(path), "msg": ", or ".join(dict.fromkeys([said[0], *others]))}


def _owners(kind: type[Settings], path: list[str]) -> list[type[Settings]]:
    """Follow a path of field names to the settings classes that can hold the last one: several kinds of a table."""
    owners = [kind]
    for part in path:
        fields = [owner.model_fields[part] for owner in owners if part in owner.model_fields]
        owners = [inner for field in fields for inner in settings_of(field)]
    return owners


def settings_of(field: FieldInfo) -> list[type[Settings]]:
    """Return the classes of the settings that a field holds, if it does."""
    kind: Any = field.annotation
    is_settings = isinstance(kind, type) and issubclass(kind, Settings)
    return [kind] if is_settings else list(tables_of(field).values())
