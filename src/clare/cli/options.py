"""The options that several commands share, and how they are read."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from clare.errors import SettingsError

PICTURES = "a folder per class, CSV or Parquet, tars, a zip, a data set of Hugging Face on disk or hf:NAME"
BACKBONE = "a name (see `clare presets`), a timm name, a weights file, or the path of a TOML file"

Preset = Annotated[str, typer.Argument(help="A preset's name (see `clare presets`) or the path of a TOML file.")]
Backbone = Annotated[str | None, typer.Option(help=f"Lay a backbone over the preset: {BACKBONE}.")]
Runs = Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold runs.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as method.sparsity=0.9; repeatable."),
]
MethodName = Annotated[
    str | None, typer.Option("--method", help="A method's name (see `clare methods`), or path/to/file.py:Class.")
]
Methods = Annotated[
    str, typer.Option(help="Methods, separated by commas: names (see `clare methods`) or path/to/file.py:Class.")
]
Jobs = Annotated[
    int, typer.Option(min=1, help="Runs at a time, each in a process of its own with its share of the CPU threads.")
]
PerGpu = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Runs at a time on each GPU, in place of --jobs; one for which the GPU has no memory left waits until "
        "another has ended.",
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the class order and of every draw; the preset's when left out.")
]
Seeds = Annotated[
    str | None,
    typer.Option(help="Seeds, separated by commas, for every run; the preset's or experiment's own when left out."),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad-images", help="Leave out unreadable images and count them.")]
Pictures = Annotated[Path, typer.Argument(help=f"Pictures: {PICTURES}.", show_default=False)]
SkipSuspects = Annotated[
    bool, typer.Option("--skip-suspects", help="Leave out unreadable images, copies and probably wrong labels.")
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Rows out of statistics alone, whatever the method would train; a new model reads one view: seconds.",
    ),
]
Best = Annotated[
    bool, typer.Option("--best", help="For a new model: an adapter as well where one pays; takes longest.")
]
Minutes = Annotated[
    float | None, typer.Option(help="The most accurate of these that keeps within so many minutes, about.")
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
