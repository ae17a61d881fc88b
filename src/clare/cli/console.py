"""The consoles of the commands, and what they say alike."""

from collections.abc import Iterable, Sequence

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from clare.plain import plain


class PlainConsole(Console):
    """Shows what rich writes; names out of folders and files cannot steer the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is shown, the characters of texts that would act on the terminal replaced."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


console = PlainConsole()
errors = PlainConsole(stderr=True)


def say(console: Console, *lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(escape(line), soft_wrap=True, highlight=False)


def first_of(names: Sequence[str]) -> str:
    """Name the first of some classes."""
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")


def plain_table(headings: Sequence[str], left: Sequence[str] | None = None, title: str | None = None) -> Table:
    """Return a table without lines, which cuts no word; columns whose heading is not one of `left` hold numbers."""
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if left is None or heading in left else "right", overflow="fold")
    return table


def say_error(sentence: str) -> None:
    """Print what went wrong."""
    errors.print(f"[bold red]error:[/] {escape(sentence)}", soft_wrap=True, highlight=False)


def leave_if(problems: Sequence[str]) -> None:
    """Say what failed, a sentence each, and leave with exit code 1 if anything did."""
    for problem in problems:
        say_error(problem)
    if problems:
        raise typer.Exit(1)
