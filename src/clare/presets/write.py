"""Presets as text."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any


def table_lines(name: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the lines of a method's own table in a preset; nested settings are written under dotted keys."""
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
    return ["", f"[methods.{key}]", *(f"{setting} = {_text(value)}" for setting, value in flat(settings))]


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings under dotted keys."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: Any) -> str:
    """Return a text, a number or a truth value as TOML, which writes them as JSON does."""
    return json.dumps(value, ensure_ascii=False)
