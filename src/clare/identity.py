"""What makes two runs the same run, and what makes two heads equals: read from the settings alone."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clare.upgrade import upgraded_method

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


def head_label(preset: Mapping[str, Any]) -> str:
    """Return the name of a resolved preset's head: how its rows come about, and what it reads; others are no equals."""
    method = preset.get("method")
    method = upgraded_method(method) if isinstance(method, dict) else {}
    head, features = method.get("head"), method.get("features", {})
    if not isinstance(head, dict):
        return ""
    parts = [str(head[key]) for key in ("form", "kind") if key in head]
    num_blocks, with_patches = int(features.get("blocks", 1)), bool(features.get("patches", False))
    if num_blocks > 1 or with_patches:
        patches = " with middle patches" if features.get("centre", False) else " with patches"
        parts.append(f"{num_blocks} block{'s'[: num_blocks - 1]}{patches if with_patches else ''}")
    num_views = int(features.get("views", 1))
    if num_views > 1:
        parts.append(f"{num_views} views")
    return ", ".join(parts)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values under dotted keys."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def flatten(values: Mapping[str, Any]) -> dict[str, str]:
    """Return nested values as dotted keys and readable leaves."""
    return {key: text_of(value) for key, value in flat(values)}


def text_of(value: Any) -> str:
    """Return a value as people write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
