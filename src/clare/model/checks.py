"""What a model folder says, tried before it is believed: a sentence for values that cannot be a model's."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clare.errors import ModelError
from clare.model.records import Change, ClassInfo, class_reports, standing

RESTORE = "restore the folder from a copy"
"""What to do about a damaged file of a model folder."""

Test = Callable[[Any], bool]


def _is(*kinds: type) -> Test:
    """Return a test for values of some types; true and false are no numbers."""
    return lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _list_of(test: Test) -> Test:
    """Return a test for lists of such values."""
    return lambda value: isinstance(value, list) and all(map(test, value))


def _fields(**tests: Test) -> Test:
    """Return a test for objects that have at least these fields."""
    return lambda value: isinstance(value, dict) and all(key in value and tests[key](value[key]) for key in tests)


def _is_name(value: Any) -> bool:
    """Tell whether a value names a file of the folder itself."""
    return isinstance(value, str) and Path(value).name == value


TEXT, NUMBER = _is(str), _is(int)
STATE_TESTS = {
    "method": _fields(name=TEXT),
    "seed": NUMBER,
    "structure": _fields(tasks=_list_of(_list_of(TEXT))),
    "backbone": _is(dict, type(None)),
    "backbone_hash": TEXT,
    "transforms": _is(dict),
    "tensors": _is_name,
    "classes": _list_of(_fields(name=TEXT, task=NUMBER, taught_at=TEXT, num_images=NUMBER)),
    "calibration": _is(dict, type(None)),
}
HISTORY_TESTS = {
    "version": NUMBER,
    "history": _list_of(_fields(number=NUMBER, kind=TEXT, at=TEXT, classes=_list_of(TEXT), report=_is(dict))),
    "kept": _list_of(_fields(state=_is_name, tensors=_is_name)),
    "num_kept": lambda value: NUMBER(value) and value >= 1,
}


def checked_state(path: Path, state: Any) -> dict[str, Any]:
    """Return a state whose values can be a model's."""
    if not isinstance(state, dict):
        raise ModelError(f"{path} holds a {type(state).__name__} in place of an object; {RESTORE}")
    _check(path, state, STATE_TESTS)
    try:
        for values in state["classes"]:
            ClassInfo(**values)
    except TypeError as error:
        raise _refusal(path, "classes", error) from error
    return state


def checked_history(
    path: Path, values: Mapping[str, Any]
) -> tuple[int, list[dict[str, Any]], list[dict[str, str]], int]:
    """Return version, history, kept states and their most, if they can be a model's."""
    _check(path, values, HISTORY_TESTS)
    try:
        history = [Change(**{**each, "classes": tuple(each["classes"])}) for each in values["history"]]
        class_reports(history)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise _refusal(path, "history", error) from error
    if len(values["kept"]) > len(standing(history)):
        raise ModelError(f"{path} names more states before changes than changes; {RESTORE}")
    return values["version"], values["history"], values["kept"], values["num_kept"]


def _check(path: Path, values: Mapping[str, Any], tests: Mapping[str, Test]) -> None:
    """Refuse a value that cannot be what its key says."""
    for key, test in tests.items():
        if key not in values:
            raise ModelError(f"{path} does not name {key}; {RESTORE}")
        if not test(values[key]):
            raise ModelError(f"{path} is damaged: `{key}` cannot be {_short(values[key])}; {RESTORE}")


def _refusal(path: Path, key: str, error: Exception) -> ModelError:
    """Return the sentence about a value that is of no use."""
    return ModelError(f"{path} is damaged: `{key}` cannot be used ({error!r}); {RESTORE}")


def _short(value: Any) -> str:
    """Return a value in few words."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
