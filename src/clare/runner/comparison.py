"""Whose folder it is: a comparison has its folder to itself, so that no other one replaces its summary and page."""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from clare.errors import RunError
from clare.files import write_json

FILE = "comparison.json"
SUMMARY = "summary.json"


def describe_comparison(
    preset: str, methods: Sequence[str], overrides: Sequence[str], seeds: Sequence[int]
) -> dict[str, Any]:
    """Return what tells a comparison from others; the order of methods and seeds does not."""
    return {
        "preset": preset,
        "methods": sorted(methods),
        "overrides": list(overrides),
        "seeds": sorted(seeds),
    }


def holder_of(folder: Path) -> dict[str, Any] | None:
    """Return the comparison that a folder holds, if any; of one that an older version wrote, what can be told."""
    path, summary = folder / FILE, folder / SUMMARY
    if path.is_file():
        return _read(path)
    if summary.is_file():
        found = _read(summary).values()
        # Of a run that failed it kept a label, which need not be the method's name.
        is_whole = all(isinstance(each, dict) and "method" in each for each in found)
        return {"methods": sorted({each["method"] for each in found})} if is_whole else {}
    return None


def _read(path: Path) -> dict[str, Any]:
    """Read a table of JSON."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunError(f"{path} cannot be read ({error}); choose another folder, or remove it") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise RunError(f"{path} holds no table; choose another folder, or remove it")
    return values


def take_folder(out: Path | None, default: Path, comparison: Mapping[str, Any]) -> Path:
    """Return the folder of a comparison: the given one, which no other may hold, or the first that is free or its."""
    if out is not None:
        holder = holder_of(out)
        if holder is not None and not _is_same(holder, comparison):
            other = _difference(holder, comparison)
            raise RunError(f"{out} holds another comparison, {other}; give another --out, or leave it out")
        return out
    folders = (default if number == 1 else default.with_name(f"{default.name}-{number}") for number in count(1))
    return next(folder for folder in folders if _is_same(holder_of(folder) or {}, comparison))


def note_comparison(folder: Path, comparison: Mapping[str, Any]) -> None:
    """Write down whose folder it is."""
    write_json(folder / FILE, dict(comparison))


def _is_same(holder: Mapping[str, Any], comparison: Mapping[str, Any]) -> bool:
    """Tell whether all that is known of a folder's comparison is so of this one; nothing is known of a free folder."""
    return all(comparison[key] == value for key, value in holder.items() if key in comparison)


def _difference(holder: Mapping[str, Any], comparison: Mapping[str, Any]) -> str:
    """Say what sets two comparisons apart, as the options have it."""
    key = next(key for key in comparison if key in holder and holder[key] != comparison[key])
    there, here = (_words(values[key]) for values in (holder, comparison))
    return f"with the {key} {there} and not {here}"


def _words(value: Any) -> str:
    """Return a preset's name or a list as the user writes it."""
    return value if isinstance(value, str) else ",".join(map(str, value)) or "none"
