"""Live progress bars: stream, task, phase, epoch."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from clare.engine.context import Silence


class ProgressBars(Silence):
    """A listener that draws four bars, one inside the other."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title
        self.bars = Progress(
            TextColumn("[bold]{task.fields[level]:<7}"),
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
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

    def __enter__(self) -> "ProgressBars":
        """Start drawing."""
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self.bars.stop()

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Show which task is learnt; how many steps a task has is known from the one before."""
        if self.num_steps:
            self.steps_per_task = self.num_steps
        self.num_steps = 0
        self.bars.update(self.levels["stream"], completed=index, total=num_tasks)
        if not self.console.is_terminal:
            self.console.print(f"{self.title}: task {index + 1} of {num_tasks}", highlight=False)
        names = ", ".join(classes)
        short = names if len(names) <= 28 else names[:27] + "…"
        self.bars.reset(self.levels["task"], description=short, total=self.steps_per_task)

    def step(self, name: str, num_epochs: int) -> None:
        """Show which phase or pass runs."""
        self.bars.update(self.levels["task"], completed=self.num_steps)
        self.num_steps += 1
        self.bars.reset(self.levels["phase"], description=name, total=num_epochs)

    def epoch(self, epoch: int, num_batches: int) -> None:
        """Show the epoch within the phase."""
        self.bars.update(self.levels["phase"], completed=epoch)
        self.bars.reset(self.levels["epoch"], description=f"epoch {epoch + 1}", total=num_batches)

    def batch(self) -> None:
        """Show one more batch."""
        self.bars.advance(self.levels["epoch"])

    def notice(self, text: str) -> None:
        """Print a notice above the bars."""
        self.console.print(f"[yellow]notice:[/] {text}")
