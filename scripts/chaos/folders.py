"""What the files of a folder say, without the times at which they came about."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

TIMES = {
    "at", "time", "taught_at", "seconds", "memory", "digest", "record_bytes", "record_digest", "task_bytes",
    "task_digest", "measured_at",
}  # fmt: skip
"""Keys whose values differ between two runs of one command."""
KEPT = re.compile(r"state-[0-9a-f]{16}\.json")
"""Names of states before a change, which hold the time at which a class was taught."""
DERIVED = {".png", ".svg", ".html", ".md", ".csv", ".txt"}
"""Pages and figures are made again from records, and tell times."""


class BrokenPromise(Exception):
    """What was promised did not hold; the message says what was done and what came of it."""


def told(folder: Path) -> dict[str, Any]:
    """Return what each file of a folder says; files of tensors count to the last bit."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = KEPT.sub("state", str(path.relative_to(folder)))
        if path.is_dir() or path.suffix in DERIVED or path.name == ".lock":
            continue
        key = name
        while key in found:
            key += "+"
        found[key] = _said(path)
    return found


def _said(path: Path) -> Any:
    """Return what a file says."""
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in data.splitlines()]
    if path.suffix == ".json":
        return _timeless(json.loads(data))
    return hashlib.sha256(data).hexdigest()


def _timeless(value: Any) -> Any:
    """Return a value of JSON without times."""
    if isinstance(value, dict):
        return {KEPT.sub("state", key): _timeless(part) for key, part in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [_timeless(part) for part in value]
    return KEPT.sub("state", value) if isinstance(value, str) else value


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    """Say where two folders differ first."""
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            return f"{name}: {json.dumps(found.get(name))[:300]} in place of {json.dumps(expected.get(name))[:300]}"
    return "nothing"
