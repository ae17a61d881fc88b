"""What every method promises about its settings."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from clare.errors import SettingsError
from clare.settings import TAG, Settings, build_settings, kinds_of, merge, settings_of, tables_of
from clare.testing.demands import expect, keep
from clare.testing.world import Case

OUTSIDE: dict[type[Any], Callable[[Any], float]] = {
    Le: lambda bound: bound.le + 1,
    Lt: lambda bound: bound.lt,
    Ge: lambda bound: bound.ge - 1,
    Gt: lambda bound: bound.gt,
}


def leaves(kind: type[Settings]) -> Iterator[tuple[str, FieldInfo, dict[str, Any]]]:
    """Yield all fields of a settings class, those of nested classes included, by their dotted keys.

    With each comes what must be said beside it: which kind a table is.
    """
    for key, field in kind.model_fields.items():
        tables = tables_of(field)
        for inner in settings_of(field):
            tag = {TAG: inner.model_fields[TAG].default} if tables else {}
            for name, leaf, beside in leaves(inner):
                yield f"{key}.{name}", leaf, {key: {**tag, **beside}}
        if not settings_of(field):
            yield key, field, {}


def every_setting_is_typed_explained_and_bounded(case: Case) -> None:
    """Every setting has a type, a default, a sentence that explains it and, if it is a number, two bounds."""
    for key, field, _ in leaves(case.kind.settings_type):
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
    refuse({"head": {"scalee": 3}}, r"no setting 'method\.head\.scalee' \(did you mean 'scale'\?\)")
    for key, field, beside in leaves(kind):
        for bound in (bound for kind_of_value in kinds_of(field) for bound in kind_of_value.metadata):
            if type(bound) in OUTSIDE:
                value: Any = OUTSIDE[type(bound)](bound)
                for part in reversed(key.split(".")):
                    value = {part: value}
                refuse(merge(beside, value), rf"the setting 'method\.{key}' got ")
