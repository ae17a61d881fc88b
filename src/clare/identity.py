"""What makes two runs the same run: every setting, but how they were written down and where images are kept."""

import json
from collections.abc import Mapping
from typing import Any

WRITTEN = ("description", "overrides")
"""Say in other words what the settings say."""
KEPT = ("store", "cache")
"""Of `data`: where its images are while a run lasts."""


def identity(preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a preset on which its run depends: runs that agree in them are the same run."""
    values = {key: value for key, value in preset.items() if key not in WRITTEN}
    if isinstance(values.get("data"), dict):
        values["data"] = {key: value for key, value in values["data"].items() if key not in KEPT}
    return values


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested values as dotted keys and readable leaves."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return flat
