"""Live progress of several processes: one line for each run."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from clare.report.tables import duration
from clare.runner.progress import SECONDS_BETWEEN_LINES, every

AT_REST = ("waiting", "done", "failed")


class Board:
    """A line for each run that says how far it is; without a terminal, a line for each change and now and then."""

    def __init__(self, console: Console, labels: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.states = dict.fromkeys(labels, "waiting")
        self.started: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.live = Live(console=console, get_renderable=self._table, refresh_per_second=4)
        self.drawing = ExitStack()

    def __enter__(self) -> "Board":
        """Start drawing."""
        if self.console.is_terminal:
            self.live.start()
        else:
            self.drawing.enter_context(every(SECONDS_BETWEEN_LINES, self.say))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self.drawing.close()
        if self.console.is_terminal:
            self.live.stop()

    def show(self, label: str, state: str) -> None:
        """Say how far a run is."""
        if state == self.states[label]:
            return
        self.states[label] = state
        if state not in AT_REST:
            self.started.setdefault(label, self.clock())
        elif label in self.started:
            self.seconds[label] = self.clock() - self.started[label]
        if not self.console.is_terminal:
            self.console.print(f"{label}: {state}", highlight=False, soft_wrap=True)

    def say(self) -> None:
        """Print how far all runs at work are, in a line."""
        now = self.clock()
        at_work = {label: state for label, state in self.states.items() if state not in AT_REST}
        lines = [
            f"{label}: {state}, for {duration(now - self.started.get(label, now))}" for label, state in at_work.items()
        ]
        self.console.print("; ".join(lines) or "waiting", highlight=False, soft_wrap=True, markup=False)

    def _table(self) -> Table:
        """All runs; those at work come first, since a small terminal hides the last lines."""
        table = Table.grid(padding=(0, 2))
        for label, state in sorted(self.states.items(), key=lambda item: item[1] in AT_REST):
            style = {"done": "green", "failed": "red", "waiting": "dim"}.get(state, "bold")
            seconds = self.seconds.get(label) or self.clock() - self.started.get(label, self.clock())
            table.add_row(label, f"[{style}]{state}[/]", duration(seconds) if label in self.started else "")
        return table


def progress_of(folder: Path) -> str:
    """Say how far the run of a folder is, from its record alone."""
    num_done, num_tasks = 0, 0
    record = folder / "record.jsonl"
    for line in record.read_bytes().splitlines() if record.exists() else []:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        if event.get("event") == "start":
            num_tasks = len(event.get("task_sizes") or ())
        num_done += event.get("event") == "task"
    if not num_tasks:
        return "started"
    return f"task {min(num_done + 1, num_tasks)} of {num_tasks}"
