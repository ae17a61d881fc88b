"""From a preset's file and the user's overrides to an experiment."""

import tomllib
from collections.abc import Container, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from clare.errors import SettingsError, nearest
from clare.methods import METHODS
from clare.methods.base import Method
from clare.presets.schema import Experiment
from clare.registry import is_file_name
from clare.settings import build_settings

SECTIONS = ("data", "stream", "transforms", "backbone", "engine", "method")


def preset_names() -> list[str]:
    """Return the names of the presets in the package."""
    return sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml"))


def _folder() -> Path:
    return Path(str(files("clare") / "presets"))


def read_preset(name: str, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the raw values of a preset of the package or of a TOML file, laid over the one it extends."""
    path = Path(name) if name.endswith(".toml") else _folder() / f"{name}.toml"
    if path in extended_by:
        raise SettingsError(f"the preset '{name}' extends itself; remove `extends` from it or from one it extends")
    if not path.is_file():
        known = preset_names()
        raise SettingsError(
            f"there is no preset '{name}'{nearest(name, known)}; known: {', '.join(known)}, or the path of a TOML file"
        )
    try:
        values = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name} is not valid TOML: {error}; correct it") from error
    parent = values.pop("extends", None)
    merged = merge(read_preset(str(parent), (*extended_by, path)), values) if parent else values
    return {**merged, "name": path.stem}


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Lay nested values over others."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def parse_override(text: str) -> dict[str, Any]:
    """Turn `a.b=value` into nested values; the value is read as TOML, or as text when it is none."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"--set got '{text}'; write it as key=value, such as method.sparsity=0.9")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)


def make_experiment(
    preset: str, method: str | None = None, overrides: Iterable[str] = (), seed: int | None = None
) -> Experiment:
    """Resolve a preset with a method, overrides and a seed into an experiment."""
    overrides = list(overrides)
    values = read_preset(preset)
    shared, own = _table(values, "method"), _table(values, "methods")
    name = method or str(values.pop("default_method", "clare"))
    values.pop("default_method", None)
    kind = METHODS.get(name)
    _check_methods(shared, own, kind)
    settings = {key: value for key, value in shared.items() if key in kind.settings_type.model_fields}
    values["method"] = merge(settings, _table(own, name))
    for override in overrides:
        values = merge(values, _checked(parse_override(override), kind.settings_type.model_fields))
    if seed is not None:
        values["seed"] = seed
    method_settings = build_settings(kind.settings_type, values["method"], "method")
    values["method"] = {"name": name, **method_settings.model_dump(mode="json")}
    values["overrides"] = overrides
    return build_settings(Experiment, values, "")


def _table(values: dict[str, Any], key: str) -> dict[str, Any]:
    """Take a section out of a preset's values; one that is left out is empty."""
    section = values.pop(key, {})
    if not isinstance(section, dict):
        raise SettingsError(f"the preset's section '{key}' got {section!r}; write it as a table of settings")
    return section


def _check_methods(shared: dict[str, Any], own: dict[str, Any], chosen: type[Method]) -> None:
    """Refuse shared settings that no method has, and sections of methods that do not exist."""
    kinds = [chosen, *(METHODS.get(name) for name in METHODS)]
    known = {field for kind in kinds for field in kind.settings_type.model_fields}
    for key in sorted(shared.keys() - known):
        raise SettingsError(f"no method has the setting 'method.{key}'{nearest(key, known)}; correct or remove it")
    for name in own:
        # A method in a file is looked up when it is the chosen one: the others' files need not be here.
        if not is_file_name(name):
            METHODS.get(name)


def _checked(values: dict[str, Any], fields: Container[str]) -> dict[str, Any]:
    """Refuse an override outside the sections that a user may change."""
    key = next(iter(values))
    if key not in (*SECTIONS, "seed"):
        hint = f" (did you mean 'method.{key}'?)" if key in fields else nearest(key, SECTIONS)
        raise SettingsError(f"there is no setting '{key}'{hint}; a setting starts with one of {', '.join(SECTIONS)}")
    if key != "seed" and not isinstance(values[key], dict):
        raise SettingsError(f"--set got a value for all of '{key}'; name one of its settings, such as {key}.NAME=VALUE")
    if key == "method" and "name" in values["method"]:
        raise SettingsError("the method is chosen with --method NAME, not with --set method.name")
    return values
