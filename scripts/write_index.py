"""Write src/clare/index.json, which the listing commands read, from the code: python scripts/write_index.py."""

import json
from collections.abc import Iterator
from pathlib import Path

from clare.backbones.hub import published
from clare.backbones.settings import EMBEDDED
from clare.cli.listing import index_method
from clare.index import FILE, Index
from clare.methods import METHODS
from clare.presets.load import backbone_names, make_experiment, preset_names, read_backbone, read_preset

PATH = Path(__file__).parents[1] / "src" / "clare" / FILE


def make_index() -> Index:
    """Return what the code says."""
    # Methods of other packages, which happen to be installed here, are no part of this one.
    kinds = [METHODS.get(name) for name in METHODS]
    return {
        "methods": [index_method(kind) for kind in kinds if kind.__module__.startswith("clare.methods.")],
        "presets": {name: make_experiment(name).method for name in preset_names()},
        "weights": {name: published(name) for name in sorted(set(backbones())) if name != EMBEDDED},
    }


def backbones() -> Iterator[str]:
    """Yield the backbones that the package's presets name."""
    for values in (*map(read_preset, preset_names()), *map(read_backbone, backbone_names())):
        yield values.get("backbone", {}).get("name", EMBEDDED)


def text() -> str:
    """Return the file as it is to be."""
    return json.dumps(make_index(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
