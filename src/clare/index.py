"""What listing commands read in place of the code: it brings torch, which takes seconds.

`scripts/write_index.py` writes `index.json` from the classes, and a test keeps it equal to them.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any, TypedDict

FILE = "index.json"


class IndexedSetting(TypedDict):
    """A setting of a method, each part as people read it."""

    key: str
    default: str
    allowed: str
    description: str


class IndexedMethod(TypedDict):
    """A method as `clare methods` shows it."""

    name: str
    family: str
    summary: str
    settings: list[IndexedSetting]


class IndexedWeights(TypedDict):
    """Where timm finds a backbone's weights on the Hub, if it does, and how many bytes they have."""

    repository: str | None
    file: str
    num_bytes: int


class Index(TypedDict):
    """The package's methods, the resolved method of each of its presets, and the weights that its presets name."""

    methods: list[IndexedMethod]
    presets: dict[str, dict[str, Any]]
    weights: dict[str, IndexedWeights]


@cache
def read_index() -> Index:
    """Return what the package holds."""
    index: Index = json.loads((files("clare") / FILE).read_text(encoding="utf-8"))
    return index
