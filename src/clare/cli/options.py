"""What several commands share: the groups of the help, options, the consoles and what is said alike."""

from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from clare.errors import SettingsError
from clare.plain import plain

OWN = "Your own pictures"
EXPERIMENTS = "Experiments"
PAPER = "The paper"
MACHINE = "This machine"

PICTURES = "a folder per class, CSV or Parquet, tars, a zip, a data set of Hugging Face on disk or hf:NAME"
BACKBONE = "a name (see `clare presets`), a timm name, a weights file, or the path of a TOML file"

Preset = Annotated[str, typer.Argument(help="A preset's name (see `clare presets`) or the path of a TOML file.")]
Backbone = Annotated[str | None, typer.Option(help=f"Lay a backbone over the preset: {BACKBONE}.")]
Runs = Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold runs.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as method.sparsity=0.9; repeatable."),
]
Methods = Annotated[
    str, typer.Option(help="Methods, separated by commas: names (see `clare methods`) or path/to/file.py:Class.")
]
Jobs = Annotated[
    int, typer.Option(min=1, help="Runs at a time, each in a process of its own with its share of the CPU threads.")
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the class order and of every draw; the preset's when left out.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad-images", help="Leave out unreadable images and count them.")]
Pictures = Annotated[Path, typer.Argument(help=f"Pictures: {PICTURES}.", show_default=False)]
SkipSuspects = Annotated[
    bool, typer.Option("--skip-suspects", help="Leave out unreadable images, copies and probably wrong labels.")
]
Model = Annotated[Path, typer.Argument(help="The model folder.", show_default=False)]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
OwnMethod = Annotated[
    str | None,
    typer.Option("--method", help="The model's method, needed where it is path/to/file.py:Class, which then runs."),
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Give up when another process is teaching the model, instead of waiting.")
]


def overrides_of(set_: list[str] | None, skip_bad_images: bool) -> list[str]:
    """Return all overrides as the user could have written them with --set."""
    return [*(set_ or []), *(["data.skip_bad_images=true"] if skip_bad_images else [])]


def names_in(methods: str) -> list[str]:
    """Read the methods between commas, each once."""
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not names:
        raise SettingsError("--methods is empty; name at least one method, see `clare methods`")
    return names


def values_of(overrides: list[str]) -> dict[str, Any]:
    """Return what several KEY=VALUE say together."""
    from clare.presets.load import parse_override
    from clare.settings import merge

    return reduce(merge, map(parse_override, overrides), {})


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


def plain_table(headings: Sequence[str], left: Sequence[str], title: str | None = None) -> Table:
    """Return a table without lines; columns whose heading is not one of `left` hold numbers."""
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
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
