"""What decides a setting: the preset with what it extends, what is laid over it, the command line; the last wins."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from clare.errors import SettingsError
from clare.identity import flat
from clare.settings import TAG, Settings, merge, tables_of

DEFAULT = "default"
COMMAND = "command line"


@dataclass(frozen=True)
class Layer:
    """Raw values and where they come from, in words."""

    origin: str
    values: dict[str, Any]

    def section(self, key: str) -> dict[str, Any]:
        """Return a section of the values; one that is left out is empty."""
        section = self.values.get(key, {})
        if not isinstance(section, dict):
            raise SettingsError(f"the preset's section '{key}' got {section!r}; write it as a table of settings")
        return section


def flattened(layers: Iterable[Layer]) -> dict[str, Any]:
    """Return the values of layers, each laid over those before it."""
    return reduce(merge, (layer.values for layer in layers), {})


def table_lines(name: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the lines of a method's own table in a preset; TOML writes keys, texts and numbers as JSON does."""
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
    lines = [f"{setting} = {json.dumps(value, ensure_ascii=False)}" for setting, value in flat(settings)]
    return ["", f"[methods.{key}]", *lines]


def method_values(kind: type[Settings], shared: Sequence[Layer], own: Sequence[Layer]) -> dict[str, Any]:
    """Return the raw settings of a method.

    Of what is shared by all methods it takes what it has; all else must be its own. A table that a later layer makes
    one of another kind keeps of earlier ones what the new kind has too.
    """
    taken = [Layer(layer.origin, _suited(kind, layer.values)) for layer in shared]
    layers = [*taken, *own]
    values = flattened(layers)
    last = {key: number for number, layer in enumerate(layers) for key, _ in flat(layer.values)}
    for name, field in kind.model_fields.items():
        tables, table = tables_of(field), values.get(name)
        if not tables or not isinstance(table, dict):
            continue
        chosen = tables.get(str(table.get(TAG, getattr(field.default, TAG))))
        known = {key for each in tables.values() for key in each.model_fields}
        chosen_in = last.get(f"{name}.{TAG}", 0)
        for key in table.keys() - (chosen.model_fields.keys() if chosen else table.keys()):
            said_in = last.get(f"{name}.{key}", len(layers))
            if said_in < len(taken) or (key in known and said_in < chosen_in):
                table.pop(key)
    return values


def _suited(kind: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a method has of settings shared by all; a kind of head that it cannot have is left out."""
    suited = {key: value for key, value in values.items() if key in kind.model_fields}
    for key, value in suited.items():
        tables = tables_of(kind.model_fields[key])
        if tables and isinstance(value, dict) and str(value.get(TAG)) not in tables:
            suited[key] = {name: each for name, each in value.items() if name != TAG}
    return suited


def explain(
    layers: Sequence[Layer], resolved: Mapping[str, Any], asked: dict[str, Any]
) -> Iterator[tuple[str, Any, str]]:
    """Yield key, value and deciding layer of every setting of an experiment that layers and a user made."""
    decided = dict(_decisions([*layers, Layer(COMMAND, asked)], str(resolved["method"]["name"])))
    for key, value in flat({name: part for name, part in resolved.items() if name != "overrides"}):
        said, origin = decided.get(key, (value, DEFAULT))
        # A kind of head that all methods are given is passed over by one that cannot have it.
        yield key, value, DEFAULT if key.endswith(f".{TAG}") and said != value else origin


def _decisions(layers: Sequence[Layer], method: str) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Yield what is said, the deciding word on a key last: a method's own table goes before that of all methods."""
    for layer in layers:
        rest = {key: value for key, value in layer.values.items() if key != "methods"}
        yield from ((key, (value, layer.origin)) for key, value in flat(rest))
    for layer in layers:
        own = layer.section("methods").get(method, {})
        yield from ((f"method.{key}", (value, layer.origin)) for key, value in flat(own))
    yield from ((key, (value, COMMAND)) for key, value in flat(layers[-1].values))
