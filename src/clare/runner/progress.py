"""Live progress of a run in bars and of several in a line each; without a terminal, a line now and then."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as RichTimeRemainingColumn
from rich.table import Table
from rich.text import Text

from clare.engine.context import Silence
from clare.report.tables import duration

AT_REST = ("waiting", "done", "failed")
SECONDS_BETWEEN_LINES = 15.0
"""Without a terminal nothing is silent for longer; a busy machine may be some seconds late."""


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Act again and again until the block ends, on a thread, since what the block waits for may say nothing itself."""
    has_ended = threading.Event()

    def go() -> None:
        while not has_ended.wait(seconds):
            act()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def bars_on(console: Console, *columns: ProgressColumn) -> Progress:
    """Return bars of these columns, which leave nothing behind and are not drawn where there is no terminal."""
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class Drawn(ExitStack):
    """Draws on a terminal until its block ends; where there is none, prints a line now and then."""

    def __init__(self, console: Console, drawing: Progress | Live, line: Callable[[], str]) -> None:
        super().__init__()
        self.console, self.drawing, self.line = console, drawing, line

    def __enter__(self) -> Self:
        """Start drawing."""
        if self.console.is_terminal:
            self.enter_context(self.drawing)
        else:
            self.enter_context(every(SECONDS_BETWEEN_LINES, self.say))
        return self

    def say(self) -> None:
        """Print where things stand."""
        self.console.print(self.line(), highlight=False, soft_wrap=True, markup=False)


@dataclass
class Position:
    """Where a run stands, as far as its listener was told."""

    title: str
    index: int = 0
    num_tasks: int = 0
    step: str = ""
    epoch: int = 0
    num_epochs: int = 1
    starts: list[float] = field(default_factory=list)
    """When the tasks began that were learnt in this process."""

    def seconds_left(self, now: float) -> float | None:
        """How long the run still takes, once two of its tasks were done here."""
        if len(self.starts) < 3:
            return None
        per_task = (self.starts[-1] - self.starts[0]) / (len(self.starts) - 1)
        return max(0.0, per_task * (self.num_tasks - self.index) - (now - self.starts[-1]))

    def line(self, now: float) -> str:
        """Where the run stands, in a line."""
        if not self.num_tasks:
            return f"{self.title}: getting ready"
        words = [f"{self.title}: task {self.index + 1} of {self.num_tasks}"]
        words += [self.step] if self.step else []
        words += [f"epoch {self.epoch + 1} of {self.num_epochs}"] if self.num_epochs > 1 else []
        left = self.seconds_left(now)
        words += [] if left is None else [f"about {duration(left)} left"]
        return ", ".join(words)


class TimeRemainingColumn(RichTimeRemainingColumn):
    """The remaining time; that of the stream from its tasks, which are too far between for rich to tell."""

    def __init__(self, seconds_left: Callable[[], float | None]) -> None:
        super().__init__()
        self.seconds_left = seconds_left

    def render(self, task: Task) -> Text:
        """Draw the time that one bar still takes."""
        left = self.seconds_left() if task.fields["level"] == "stream" else None
        if left is None:
            return super().render(task)
        minutes, seconds = divmod(int(left), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}", style="progress.remaining")


class ProgressBars(Drawn, Silence):
    """A listener that draws four bars, one inside the other, or prints where the run stands."""

    def __init__(self, console: Console, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.position = Position(title)
        names = (TextColumn("[bold]{task.fields[level]:<7}"), TextColumn("{task.description:<28}"))
        left = TimeRemainingColumn(lambda: self.position.seconds_left(self.clock()))
        counts = (BarColumn(bar_width=32), MofNCompleteColumn(), TimeElapsedColumn(), left)
        self.bars = bars_on(console, *names, *counts)
        super().__init__(console, self.bars, lambda: self.position.line(self.clock()))
        self.levels = {
            level: self.bars.add_task(title if level == "stream" else "", total=None, level=level)
            for level in ("stream", "task", "phase", "epoch")
        }
        self.num_steps = 0
        self.steps_per_task: int | None = None

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Show which task is learnt; how many steps a task has is known from the one before."""
        if self.num_steps:
            self.steps_per_task = self.num_steps
        self.num_steps = 0
        starts = [*self.position.starts, self.clock()]
        self.position = Position(self.position.title, index, num_tasks, starts=starts)
        self.bars.update(self.levels["stream"], completed=index, total=num_tasks)
        if not self.console.is_terminal:
            self.say()
        names = ", ".join(classes)
        short = names if len(names) <= 28 else names[:27] + "…"
        self.bars.reset(self.levels["task"], description=short, total=self.steps_per_task)

    def step(self, name: str, num_epochs: int) -> None:
        """Show which phase or pass runs."""
        self.position.step, self.position.epoch, self.position.num_epochs = name, 0, num_epochs
        self.bars.update(self.levels["task"], completed=self.num_steps)
        self.num_steps += 1
        self.bars.reset(self.levels["phase"], description=name, total=num_epochs)

    def epoch(self, epoch: int, num_batches: int) -> None:
        """Show the epoch within the phase."""
        self.position.epoch = epoch
        self.bars.update(self.levels["phase"], completed=epoch)
        self.bars.reset(self.levels["epoch"], description=f"epoch {epoch + 1}", total=num_batches)

    def batch(self) -> None:
        """Show one more batch."""
        self.bars.advance(self.levels["epoch"])

    def notice(self, text: str) -> None:
        """Print a notice above the bars."""
        self.console.print(f"[yellow]notice:[/] {text}")


class Board(Drawn):
    """A line for each run that says how far it is; without a terminal, a line for each change and now and then."""

    def __init__(self, console: Console, labels: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.states = dict.fromkeys(labels, "waiting")
        self.started: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        super().__init__(console, Live(console=console, get_renderable=self._table, refresh_per_second=4), self._line)

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

    def _line(self) -> str:
        """How far all runs at work are."""
        now = self.clock()
        at_work = {label: state for label, state in self.states.items() if state not in AT_REST}
        lines = [
            f"{label}: {state}, for {duration(now - self.started.get(label, now))}" for label, state in at_work.items()
        ]
        return "; ".join(lines) or "waiting"

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
        # The last line may be half written.
        with suppress(ValueError, RecursionError, AttributeError):
            event = json.loads(line)
            if event.get("event") == "start":
                num_tasks = len(event.get("task_sizes") or ())
            num_done += event.get("event") == "task"
    if not num_tasks:
        return "started"
    return f"task {min(num_done + 1, num_tasks)} of {num_tasks}"
