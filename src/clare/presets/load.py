"""From a preset's file and the user's overrides to an experiment.

Methods are imported where one is asked for, since they bring torch: reading presets takes no time.
"""

import tomllib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clare.backbones.settings import EMBEDDED, BackboneSettings
from clare.data.settings import DATASETS
from clare.errors import SettingsError, nearest
from clare.presets.layers import COMMAND, Layer, flattened, method_values
from clare.presets.schema import Experiment, Setup
from clare.registry import is_file_name
from clare.settings import Settings, build_settings, idle, merge, tables_of
from clare.upgrade import upgraded_preset

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

NOT_OURS = (
    ", which is not one of the package's; correct the name, or put the settings into a file of your own that extends "
    "the preset"
)

MOST_LEVELS = 32
"""How deep tables and arrays of a preset may lie in one another."""

OF_METHODS = ("method", "methods", "default_method")
"""Sections of a preset that say what methods do."""

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


def read_preset(name: str) -> dict[str, Any]:
    """Return the raw values of a preset, a name or a TOML file; in `PRESET+BACKBONE` the second lies over the first."""
    return flattened(read_layers(name))


def read_layers(name: str, extended_by: tuple[Path, ...] = ()) -> list[Layer]:
    """Return the layers of a preset, each file's values by themselves."""
    first, *overlays = layers_of(name)
    layers = _read(first, "", extended_by)
    for overlay in overlays:
        over, base = _overlay(overlay, extended_by), str(flattened(layers)["name"])
        if not _is_preset(overlay):
            # A preset's layer says what it changes; of another backbone nothing of the first one holds.
            layers = [replace(layer, values=_without(layer.values, "backbone")) for layer in layers]
        told = flattened(over)
        label = f"{base}+{told['name']}"
        own = [replace(layer, values=_without(layer.values, "description", PER_DATASET, PER_PRESET)) for layer in over]
        layers += [*own, Layer(own[-1].origin, {"name": label})]
        data = flattened(layers).get("data")
        dataset = str(data.get("dataset", "")) if isinstance(data, dict) else ""
        special = ((PER_DATASET, dataset, [*DATASETS]), (PER_PRESET, base, preset_names()))
        layers += [Layer(own[-1].origin, _special(told, label, *each)) for each in special]
    return layers


def _without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return values but for some."""
    return {key: value for key, value in values.items() if key not in keys}


def _special(told: dict[str, Any], label: str, key: str, name: str, known: list[str]) -> dict[str, Any]:
    """Return what a backbone's preset says for one data set, or for one preset, alone."""
    tables = told.get(key, {})
    if not isinstance(tables, dict) or not all(isinstance(own, dict) for own in tables.values()):
        raise SettingsError(
            f"the section '{key}' of {label} is no table of tables; write it as [{key}.NAME.methods.METHOD]"
        )
    for other in sorted(tables.keys() - {name, *known}):
        what, remedy = ("data set", f"; known: {', '.join(known)}") if key == PER_DATASET else ("preset", NOT_OURS)
        raise SettingsError(f"{label} has settings for the {what} '{other}'{nearest(other, known)}{remedy}")
    own: dict[str, Any] = tables.get(name, {})
    return own


def find_backbone(name: str | None) -> BackboneSettings:
    """Return the backbone that a user names for a new model; without a name that of the drawing model."""
    if name is None:
        return BackboneSettings()
    return build_settings(BackboneSettings, Layer(name, flattened(_overlay(name, ()))).section("backbone"), "backbone")


def _overlay(name: str, extended_by: tuple[Path, ...]) -> list[Layer]:
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
    return [Layer(f"overlay {label}", {"name": label, "backbone": named_backbone(name).model_dump(mode="json")})]


def _is_preset(backbone: str) -> bool:
    """Tell whether a backbone is named by a preset of its own, in the package or in a file."""
    return backbone.endswith(".toml") or backbone in backbone_names()


def read_backbone(name: str) -> dict[str, Any]:
    """Return the raw values of a backbone that can be laid over a preset."""
    return flattened(_read(name, BACKBONES, ()))


def _read(name: str, kind: str, extended_by: tuple[Path, ...]) -> list[Layer]:
    """Return the raw values of one file under today's names, and before them those of the one it extends."""
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
    parent, below = values.pop("extends", None), (*extended_by, path)
    extended = (_read(str(parent), kind, below) if kind else read_layers(str(parent), below)) if parent else []
    origin = f"{'overlay' if kind else 'preset'} {path.stem}"
    # What a preset extends is part of it.
    layers = [replace(layer, origin=origin) for layer in extended]
    return [*layers, Layer(origin, {**upgraded_preset(values), "name": path.stem})]


def _parsed(text: str) -> dict[str, Any]:
    """Read TOML that is nested no deeper than settings can be."""
    too_deep = ValueError(f"it is nested more than {MOST_LEVELS} deep")
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    level: list[Any] = [values]
    for _ in range(MOST_LEVELS):
        tables = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [part for table in tables for part in table]
    if level:
        raise too_deep
    return values


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


def values_of(overrides: Iterable[str]) -> dict[str, Any]:
    """Return what several KEY=VALUE say together, the last word on a setting counting."""
    return reduce(merge, map(parse_override, overrides), {})


def make_experiment(
    preset: str, method: str | None = None, overrides: Iterable[str] = (), seed: int | None = None
) -> Experiment:
    """Resolve a preset with a method, overrides and a seed into an experiment; a file must have been named before."""
    from clare.methods import METHODS

    overrides = list(overrides)
    layers = read_layers(preset)
    values = flattened(layers)
    name = method or str(values.get("default_method", "clare"))
    kind = METHODS.get(name) if method else METHODS.get(name, f"the preset '{preset}'")
    settings_type = kind.settings_type
    shared = [Layer(layer.origin, layer.section("method")) for layer in layers]
    tables = [Layer(layer.origin, layer.section("methods")) for layer in layers]
    _check_methods(flattened(shared), flattened(tables), kind)
    asked = _asked(overrides, settings_type.model_fields)
    command = Layer(COMMAND, asked if seed is None else {**asked, "seed": seed})
    own = [Layer(layer.origin, layer.section(name)) for layer in tables]
    told = method_values(settings_type, shared, [*own, Layer(command.origin, command.section("method"))])
    settings = build_settings(settings_type, told, "method")
    rest = [Layer(layer.origin, _without(layer.values, *OF_METHODS)) for layer in (*layers, command)]
    resolved = {"name": name, **settings.model_dump(mode="json")}
    return build_settings(Experiment, {**flattened(rest), "method": resolved, "overrides": overrides}, "")


def check_acting(experiments: Sequence[Experiment]) -> None:
    """Refuse an override that does nothing in any of the experiments that were made with it."""
    reasons: dict[str, list[str]] = {}
    for experiment in experiments:
        settings = {"method": experiment.method_settings(), "transforms": experiment.transforms}
        for override in experiment.overrides:
            (section, asked), *_ = parse_override(override).items()
            found = [*idle(settings[section], asked, f"{section}.")] if section in settings else []
            reasons.setdefault(override, []).append(
                f"'{found[0][0]}' does nothing here: {found[0][1]}" if found else ""
            )
    for override, why in reasons.items():
        if all(why):
            raise SettingsError(f"--set {override} cannot be used: {why[0]}; leave it out, or set that too")


def make_setup(preset: str, overrides: Sequence[str] = ()) -> Setup:
    """Resolve all of a preset but its method, whose settings are passed over."""
    values = merge(read_preset(preset), _asked(overrides, ()))
    return build_settings(Setup, _without(values, *OF_METHODS), "")


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


def _check_methods(shared: dict[str, Any], own: dict[str, Any], chosen: "type[Method]") -> None:
    """Refuse shared settings that no method has, and sections of methods that do not exist."""
    from clare.methods import METHODS

    kinds = [chosen, *(METHODS.get(name) for name in METHODS)]
    known = {field for kind in kinds for field in _settings_in(kind.settings_type)}
    head = shared.get("head")
    given = shared.keys() | {f"head.{name}" for name in (head if isinstance(head, dict) else ())}
    for key in sorted(given - known):
        raise SettingsError(f"no method has the setting 'method.{key}'{nearest(key, known)}; correct or remove it")
    for name in own:
        # A method in a file is looked up when it is the chosen one: the others' files need not be here.
        if not is_file_name(name):
            METHODS.get(name)


def _settings_in(kind: type[Settings]) -> Iterator[str]:
    """Yield a method's settings, and under dotted keys those of all kinds of a table."""
    for key, field in kind.model_fields.items():
        yield key
        yield from (f"{key}.{name}" for table in tables_of(field).values() for name in table.model_fields)


def _asked(overrides: Sequence[str], fields: Container[str]) -> dict[str, Any]:
    """Return what overrides ask for; one outside the sections that a user may change is refused."""
    for values in map(parse_override, overrides):
        _check(values, fields)
    return values_of(overrides)


def _check(values: dict[str, Any], fields: Container[str]) -> None:
    """Refuse an override outside the sections that a user may change."""
    key = next(iter(values))
    if key not in (*SECTIONS, "seed"):
        hint = f" (did you mean 'method.{key}'?)" if key in fields else nearest(key, SECTIONS)
        raise SettingsError(f"there is no setting '{key}'{hint}; a setting starts with one of {', '.join(SECTIONS)}")
    if key != "seed" and not isinstance(values[key], dict):
        raise SettingsError(f"--set got a value for all of '{key}'; name one of its settings, such as {key}.NAME=VALUE")
    if key == "method" and "name" in values["method"]:
        raise SettingsError("the method is chosen with --method NAME, not with --set method.name")
