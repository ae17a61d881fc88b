"""Live progress of a run: bars for stream, task, phase and epoch; without a terminal, a line now and then."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as RichTimeRemainingColumn
from rich.text import Text

from clare.engine.context import Silence
from clare.report.tables import duration

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


def seconds_left(starts: Sequence[float], num_tasks: int, now: float) -> float | None:
    """Return how long a run still takes, once two of its tasks were done here: when each began, and how many remain."""
    if len(starts) < 3:
        return None
    per_task = (starts[-1] - starts[0]) / (len(starts) - 1)
    return max(0.0, per_task * num_tasks - (now - starts[-1]))


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
        """How long the run still takes, if that can be told."""
        return seconds_left(self.starts, self.num_tasks - self.index, now)

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


class ProgressBars(Silence):
    """A listener that draws four bars, one inside the other, or prints where the run stands."""

    def __init__(self, console: Console, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.position = Position(title)
        self.bars = Progress(
            TextColumn("[bold]{task.fields[level]:<7}"),
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(lambda: self.position.seconds_left(self.clock())),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.levels = {
            level: self.bars.add_task(title if level == "stream" else "", total=None, level=level)
            for level in ("stream", "task", "phase", "epoch")
        }
        self.num_steps = 0
        self.steps_per_task: int | None = None
        self.drawing = ExitStack()

    def __enter__(self) -> "ProgressBars":
        """Start drawing."""
        self.bars.start()
        if not self.console.is_terminal:
            self.drawing.enter_context(every(SECONDS_BETWEEN_LINES, self.say))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self.drawing.close()
        self.bars.stop()

    def say(self) -> None:
        """Print where the run stands."""
        self.console.print(self.position.line(self.clock()), highlight=False, soft_wrap=True, markup=False)

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
