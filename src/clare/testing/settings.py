"""What every method promises about its settings."""

from collections.abc import Callable
from typing import Any, Literal, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from clare.errors import SettingsError
from clare.settings import Settings, build_settings, kinds_of
from clare.testing.demands import expect, keep
from clare.testing.world import Case

OUTSIDE: dict[type[Any], Callable[[Any], float]] = {
    Le: lambda bound: bound.le + 1,
    Lt: lambda bound: bound.lt,
    Ge: lambda bound: bound.ge - 1,
    Gt: lambda bound: bound.gt,
}


def leaves(kind: type[Settings]) -> dict[str, FieldInfo]:
    """Return all fields of a settings class, those of nested classes included, by their dotted keys."""
    found: dict[str, FieldInfo] = {}
    for key, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            found |= {f"{key}.{name}": leaf for name, leaf in leaves(field.annotation).items()}
        else:
            found[key] = field
    return found


def every_setting_is_typed_explained_and_bounded(case: Case) -> None:
    """Every setting has a type, a default, a sentence that explains it and, if it is a number, two bounds."""
    for key, field in leaves(case.kind.settings_type).items():
        keep(bool(field.description), f"the setting '{key}' has no description")
        keep(str(field.description).endswith("."), f"the description of '{key}' does not end with a full stop")
        keep(not field.is_required(), f"the setting '{key}' has no default")
        for kind in kinds_of(field):
            if kind.annotation in (int, float):
                keep(any(isinstance(bound, Ge | Gt) for bound in kind.metadata), f"'{key}' has no lower bound")
                keep(any(isinstance(bound, Le | Lt) for bound in kind.metadata), f"'{key}' has no upper bound")
            else:
                known = kind.annotation is bool or get_origin(kind.annotation) is Literal
                keep(known, f"the setting '{key}' is {kind.annotation}, not int, float, bool, Literal or Settings")


def a_wrong_setting_is_named(case: Case) -> None:
    """A setting that does not exist, or lies outside its bounds, is refused in a sentence that names it."""
    kind = case.kind.settings_type

    def refuse(values: dict[str, Any], pattern: str) -> None:
        expect(SettingsError, lambda: build_settings(kind, values, "method"), f"it accepts {values}", pattern)

    refuse({"wrong": 1}, r"no setting 'method\.wrong'.*allowed here: .*head")
    refuse({"head": {"strateggy": "trained"}}, r"no setting 'method\.head\.strateggy' \(did you mean 'strategy'\?\)")
    for key, field in leaves(kind).items():
        for bound in (bound for kind_of_value in kinds_of(field) for bound in kind_of_value.metadata):
            if type(bound) in OUTSIDE:
                value: Any = OUTSIDE[type(bound)](bound)
                for part in reversed(key.split(".")):
                    value = {part: value}
                refuse(value, rf"the setting 'method\.{key}' got ")
