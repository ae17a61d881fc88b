"""Live progress of several processes: one line for each run."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from clare.report.tables import duration

AT_REST = ("waiting", "done", "failed")


class Board:
    """A line for each run that says how far it is; without a terminal, a line for each change."""

    def __init__(self, console: Console, labels: Sequence[str]) -> None:
        self.console = console
        self.states = dict.fromkeys(labels, "waiting")
        self.started: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.live = Live(console=console, get_renderable=self._table, refresh_per_second=4)

    def __enter__(self) -> "Board":
        """Start drawing."""
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        if self.console.is_terminal:
            self.live.stop()

    def show(self, label: str, state: str) -> None:
        """Say how far a run is."""
        if state == self.states[label]:
            return
        self.states[label] = state
        if state not in AT_REST:
            self.started.setdefault(label, time.monotonic())
        elif label in self.started:
            self.seconds[label] = time.monotonic() - self.started[label]
        if not self.console.is_terminal:
            self.console.print(f"{label}: {state}", highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        """All runs; those at work come first, since a small terminal hides the last lines."""
        table = Table.grid(padding=(0, 2))
        for label, state in sorted(self.states.items(), key=lambda item: item[1] in AT_REST):
            style = {"done": "green", "failed": "red", "waiting": "dim"}.get(state, "bold")
            seconds = self.seconds.get(label) or time.monotonic() - self.started.get(label, time.monotonic())
            table.add_row(label, f"[{style}]{state}[/]", duration(seconds) if label in self.started else "")
        return table


def progress_of(folder: Path) -> str:
    """Say how far the run of a folder is, from its record alone."""
    num_done, num_tasks = 0, 0
    record = folder / "record.jsonl"
    for line in record.read_bytes().splitlines() if record.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "start":
            num_tasks = len(event["task_sizes"])
        num_done += event.get("event") == "task"
    if not num_tasks:
        return "started"
    return f"task {min(num_done + 1, num_tasks)} of {num_tasks}"
