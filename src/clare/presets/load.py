"""From a preset's file and the user's overrides to an experiment.

Methods are imported where one is asked for, since they bring torch: reading presets takes no time.
"""

import tomllib
from collections.abc import Container, Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clare.backbones.settings import EMBEDDED, BackboneSettings
from clare.data.settings import DATASETS
from clare.errors import SettingsError, nearest
from clare.presets.schema import Experiment, Setup
from clare.registry import is_file_name
from clare.settings import build_settings

if TYPE_CHECKING:
    from clare.methods.base import Method

BACKBONES = "backbones"
"""Folder of the presets that hold a backbone and what goes with it."""

PER_DATASET = "datasets"
"""Section of a backbone's preset with what is laid over presets of one data set alone."""

PER_PRESET = "presets"
"""Section of a backbone's preset with what is laid over one preset alone, such as a stream of many small tasks."""

MOVED = {
    "vits14-112": "it belongs to a study whose weights are not distributed; take vits14-dinov2, the same on public "
    "weights, or the file studies/vits14-112/vits14-112.toml of the repository with weights of your own"
}
"""Backbones that the package once had, and where they went."""

MOST_LEVELS = 32
"""How deep tables and arrays of a preset may lie in one another."""

SECTIONS = ("data", "stream", "transforms", "backbone", "engine", "method")


def preset_names() -> list[str]:
    """Return the names of the presets in the package."""
    return _names_in(_folder())


def backbone_names() -> list[str]:
    """Return the names of the backbones in the package that can be laid over a preset."""
    return _names_in(_folder() / BACKBONES)


def _names_in(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.toml"))


def _folder() -> Path:
    return Path(str(files("clare") / "presets"))


def with_backbone(preset: str, backbone: str | None) -> str:
    """Name a preset with a backbone laid over it."""
    return preset if backbone is None else f"{preset}+{backbone}"


def layers_of(name: str) -> list[str]:
    """Return the parts of `PRESET+BACKBONE`: a preset, and what is laid over it."""
    return [name] if Path(name).is_file() else name.split("+")


def read_preset(name: str, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the raw values of a preset, a name or a TOML file; in `PRESET+BACKBONE` the second lies over the first."""
    first, *layers = layers_of(name)
    values = _read(first, "", extended_by)
    for layer in layers:
        over = _layer(layer, extended_by)
        if not _is_preset(layer):
            # A preset's layer says what it changes; of another backbone nothing of the first one holds.
            values.pop("backbone", None)
        base, label = str(values["name"]), f"{values['name']}+{over.pop('name')}"
        over.pop("description", None)
        per_dataset, per_preset = (_sections(over.pop(key, {}), key, label) for key in (PER_DATASET, PER_PRESET))
        values = {**merge(values, over), "name": label}
        values = merge(merge(values, _of_dataset(values, per_dataset)), _of_preset(base, per_preset, label))
    return values


def _sections(tables: Any, key: str, label: str) -> dict[str, dict[str, Any]]:
    """Return what a backbone's preset says for some data sets or presets alone."""
    if not isinstance(tables, dict) or not all(isinstance(own, dict) for own in tables.values()):
        raise SettingsError(
            f"the section '{key}' of {label} is no table of tables; write it as [{key}.NAME.methods.METHOD]"
        )
    return tables


def _of_dataset(values: dict[str, Any], tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what is said for the data set of a preset alone."""
    for name in sorted(tables.keys() - set(DATASETS)):
        raise SettingsError(
            f"{values['name']} has settings for the data set '{name}'{nearest(name, DATASETS)}; known: "
            f"{', '.join(DATASETS)}"
        )
    data = values.get("data", {})
    return tables.get(data.get("dataset", ""), {}) if isinstance(data, dict) else {}


def _of_preset(base: str, tables: dict[str, dict[str, Any]], label: str) -> dict[str, Any]:
    """Return what is said for one preset alone."""
    known = preset_names()
    for name in sorted(tables.keys() - {base, *known}):
        raise SettingsError(
            f"{label} has settings for the preset '{name}'{nearest(name, known)}, which is not one of the package's; "
            "correct the name, or put the settings into a file of your own that extends the preset"
        )
    return tables.get(base, {})


def find_backbone(name: str | None) -> BackboneSettings:
    """Return the backbone that a user names for a new model; without a name that of the drawing model."""
    if name is None:
        return BackboneSettings()
    return build_settings(BackboneSettings, _table(_layer(name, ()), "backbone"), "backbone")


def _layer(name: str, extended_by: tuple[Path, ...]) -> dict[str, Any]:
    """Return what `--backbone NAME` lays over a preset: a backbone preset or TOML file, a timm name or weights file."""
    if _is_preset(name) or name in MOVED:
        return _read(name, BACKBONES, extended_by)
    # It brings timm and torch.
    from clare.backbones.named import is_timm_model, is_weights_file, named_backbone

    if not (name == EMBEDDED or is_weights_file(name) or is_timm_model(name)):
        known = backbone_names()
        raise SettingsError(
            f"there is no backbone '{name}'{nearest(name, [*known, EMBEDDED])}; give a backbone preset "
            f"({', '.join(known)}), a timm name such as vit_base_patch16_224.augreg_in21k, a safetensors file or the "
            "path of a TOML file"
        )
    label = Path(name).stem if is_weights_file(name) else name
    return {"name": label, "backbone": named_backbone(name).model_dump(mode="json")}


def _is_preset(backbone: str) -> bool:
    """Tell whether a backbone is named by a preset of its own, in the package or in a file."""
    return backbone.endswith(".toml") or backbone in backbone_names()


def read_backbone(name: str) -> dict[str, Any]:
    """Return the raw values of a backbone that can be laid over a preset."""
    return _read(name, BACKBONES, ())


def _read(name: str, kind: str, extended_by: tuple[Path, ...]) -> dict[str, Any]:
    """Return the raw values of one file, laid over those of the one it extends."""
    path = Path(name) if name.endswith(".toml") else _folder() / kind / f"{name}.toml"
    if path in extended_by:
        raise SettingsError(f"the preset '{name}' extends itself; remove `extends` from it or from one it extends")
    if not path.is_file() and kind and name in MOVED:
        raise SettingsError(f"there is no backbone preset '{name}' any more: {MOVED[name]}")
    if not path.is_file():
        known, what = (backbone_names(), "backbone preset") if kind else (preset_names(), "preset")
        raise SettingsError(
            f"there is no {what} '{name}'{nearest(name, known)}; known: {', '.join(known)}, or the path of a TOML file"
        )
    try:
        values = _parsed(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror or error}); make it readable") from None
    except ValueError as error:
        raise SettingsError(f"{path.name} is not valid TOML: {error}; correct it") from None
    parent = values.pop("extends", None)
    merged = values
    if parent:
        below = (*extended_by, path)
        merged = merge(_read(str(parent), kind, below) if kind else read_preset(str(parent), below), values)
    return {**merged, "name": path.stem}


def _parsed(text: str) -> dict[str, Any]:
    """Read TOML that is nested no deeper than settings can be."""
    too_deep = ValueError(f"it is nested more than {MOST_LEVELS} deep")
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    level: list[Any] = [values]
    for _ in range(MOST_LEVELS):
        level = [part for each in level if isinstance(each, dict | list) for part in _parts(each)]
    if level:
        raise too_deep
    return values


def _parts(value: dict[str, Any] | list[Any]) -> list[Any]:
    """Return what lies directly in a table or an array."""
    return list(value.values()) if isinstance(value, dict) else value


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
        value = _parsed(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    except ValueError as error:
        raise SettingsError(f"--set got a value for '{key.strip()}' that cannot be read: {error}; correct it") from None
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)


def make_experiment(
    preset: str, method: str | None = None, overrides: Iterable[str] = (), seed: int | None = None
) -> Experiment:
    """Resolve a preset with a method, overrides and a seed into an experiment; a file must have been named before."""
    from clare.methods import METHODS

    overrides = list(overrides)
    values = read_preset(preset)
    shared, own = _table(values, "method"), _table(values, "methods")
    name = method or str(values.pop("default_method", "clare"))
    values.pop("default_method", None)
    kind = METHODS.get(name) if method else METHODS.get(name, f"the preset '{preset}'")
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


def make_setup(preset: str, overrides: Iterable[str] = ()) -> Setup:
    """Resolve all of a preset but its method, whose settings are passed over."""
    values = read_preset(preset)
    for override in overrides:
        values = merge(values, _checked(parse_override(override), ()))
    sections = {key: value for key, value in values.items() if key not in ("method", "methods", "default_method")}
    return build_settings(Setup, sections, "")


def overrides_for(method: str, methods: Iterable[str], overrides: Iterable[str]) -> list[str]:
    """Leave out settings that this method does not have and another of these methods has."""
    from clare.methods import METHODS

    known = {field for other in methods for field in METHODS.get(other).settings_type.model_fields}
    foreign = known - METHODS.get(method).settings_type.model_fields.keys()
    return [override for override in overrides if _method_key(override) not in foreign]


def _method_key(override: str) -> str:
    """Return KEY of an override `method.KEY...=VALUE`, and nothing of others."""
    section, _, rest = override.partition("=")[0].strip().partition(".")
    return rest.partition(".")[0] if section == "method" else ""


def _table(values: dict[str, Any], key: str) -> dict[str, Any]:
    """Take a section out of a preset's values; one that is left out is empty."""
    section = values.pop(key, {})
    if not isinstance(section, dict):
        raise SettingsError(f"the preset's section '{key}' got {section!r}; write it as a table of settings")
    return section


def _check_methods(shared: dict[str, Any], own: dict[str, Any], chosen: "type[Method]") -> None:
    """Refuse shared settings that no method has, and sections of methods that do not exist."""
    from clare.methods import METHODS

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
