"""What a run left in its folder, in a form that compares to the bit, and listeners that stop a run."""

import json
from pathlib import Path
from typing import Any

from clare.engine.context import Silence


class Stop(BaseException):
    """Ends a run at once, as a signal would: nothing in the package catches it."""


class StopAtTask(Silence):
    """A listener that stops the run when a task begins."""

    def __init__(self, index: int) -> None:
        self.index = index

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Stop at the chosen task."""
        if index == self.index:
            raise Stop


class StopAtBatch(Silence):
    """A listener that stops the run after some batches."""

    def __init__(self, num_batches: int) -> None:
        self.num_left = num_batches

    def batch(self) -> None:
        """Count down."""
        self.num_left -= 1
        if self.num_left == 0:
            raise Stop


def outcome(folder: Path) -> dict[str, Any]:
    """Return the names of all files, the bytes of all tensors, and all that JSON holds but what tells the time."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    position = json.loads((folder / "checkpoint" / "position.json").read_text())
    # The record tells the time, and the preset how its settings were written.
    told = ("record_bytes", "record_digest", "task_bytes", "task_digest", "digest")
    position = {key: value for key, value in position.items() if key not in told}
    position["files"] = {name: digest for name, digest in position["files"].items() if name.endswith(".safetensors")}
    return {
        "names": [str(path.relative_to(folder)) for path in files],
        "tensors": {
            str(path.relative_to(folder)): path.read_bytes() for path in files if path.suffix == ".safetensors"
        },
        "model": json.loads((folder / "model" / "model.json").read_text()),
        "events": events(folder),
        "position": position,
    }


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run without times, durations and memory."""
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("time", "seconds", "memory")} for line in lines]
