"""Which layer decided a setting: the preset with what it extends, what is laid over it, or the command line."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clare.presets.layers import Layer, flattened
from clare.presets.load import parse_override, read_layers
from clare.presets.write import flat
from clare.settings import TAG

DEFAULT = "default"
COMMAND = "command line"


def explain(preset: str, resolved: Mapping[str, Any], overrides: Iterable[str] = ()) -> Iterator[tuple[str, Any, str]]:
    """Yield key, value and deciding layer of every setting of a resolved experiment."""
    layers, asked = read_layers(preset), flattened(Layer(COMMAND, parse_override(text)) for text in overrides)
    decided = dict(_decisions([*layers, Layer(COMMAND, asked)], str(resolved["method"]["name"])))
    for key, value in flat({name: part for name, part in resolved.items() if name != "overrides"}):
        said, origin = decided.get(key, (value, DEFAULT))
        # A kind of head that all methods are given is passed over by one that cannot have it.
        yield key, value, DEFAULT if key.endswith(f".{TAG}") and said != value else origin


def _decisions(layers: Iterable[Layer], method: str) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Yield what is said, the deciding word on a key last: a method's own table goes before that of all methods."""
    layers = list(layers)
    for layer in layers:
        rest = {key: value for key, value in layer.values.items() if key != "methods"}
        yield from ((key, (value, layer.origin)) for key, value in flat(rest))
    for layer in layers:
        own = layer.section("methods").get(method, {})
        yield from ((f"method.{key}", (value, layer.origin)) for key, value in flat(own))
    yield from ((key, (value, COMMAND)) for key, value in flat(flattened(layers[-1:])))
