"""Whose folder it is: a comparison has its folder to itself, so that no other one replaces its summary and page."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from clare.errors import RunError
from clare.sealed import read_object

FILE = "comparison.json"
SUMMARY = "summary.json"
REMOVE = "choose another folder, or remove it"


def describe_comparison(
    preset: str, methods: Sequence[str], overrides: Sequence[str], seeds: Sequence[int]
) -> dict[str, Any]:
    """Return what tells a comparison from others; the order of methods and seeds does not."""
    return {"preset": preset, "methods": sorted(methods), "overrides": list(overrides), "seeds": sorted(seeds)}


def holder_of(folder: Path) -> dict[str, Any] | None:
    """Return the comparison that a folder holds, if any; of one that an older version wrote, what can be told."""
    path, summary = folder / FILE, folder / SUMMARY
    if path.is_file():
        return read_object(path, RunError, REMOVE)
    if summary.is_file():
        found = read_object(summary, RunError, REMOVE).values()
        # Of a run that failed it kept a label, which need not be the method's name.
        is_whole = all(isinstance(each, dict) and "method" in each for each in found)
        return {"methods": sorted({each["method"] for each in found})} if is_whole else {}
    return None


def take_folder(out: Path | None, default: Path, comparison: Mapping[str, Any]) -> Path:
    """Return the folder of a comparison: the given one, which no other may hold, or the first that is free or its."""
    if out is not None:
        holder = holder_of(out) or {}
        for key in _differing(holder, comparison):
            found = (holder[key], comparison[key])
            there, here = (each if isinstance(each, str) else ",".join(map(str, each)) or "none" for each in found)
            raise RunError(
                f"{out} holds another comparison, with the {key} {there} and not {here}; give another --out, or leave "
                "it out"
            )
        return out
    folders = (default if number == 1 else default.with_name(f"{default.name}-{number}") for number in count(1))
    return next(folder for folder in folders if not _differing(holder_of(folder) or {}, comparison))


def _differing(holder: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[str]:
    """Return in what two comparisons are known to differ; of a free folder nothing is known."""
    return [key for key in comparison if holder.get(key, comparison[key]) != comparison[key]]
