"""The signature of `clare data`."""

from typing import Annotated

import typer
from rich.console import Console

from clare.cli.words import BACKBONE, MACHINE


def add_data_commands(app: typer.Typer, console: Console, errors: Console) -> None:
    """Add `clare data`."""

    @app.command(rich_help_panel=MACHINE)
    def data(
        preset: Annotated[
            str, typer.Argument(help="A preset's name (see `clare presets`) or the path of a TOML file.")
        ],
        fetch: Annotated[
            bool, typer.Option("--fetch", help="Download what is missing, or unpack what you have downloaded.")
        ] = False,
        method: Annotated[
            str | None, typer.Option(help="The method of the run, where the preset asks for path/to/file.py:Class.")
        ] = None,
        backbone: Annotated[str | None, typer.Option(help=f"Lay a backbone over the preset: {BACKBONE}.")] = None,
        set_: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as data.root=/mnt; repeatable."),
        ] = None,
    ) -> None:
        """Say which data and weights a preset needs, what of it is here, where the rest comes from, and fetch it."""
        from clare.runner.supplies import data_command

        if not data_command(console, errors, preset, method, backbone, set_ or [], fetch):
            raise typer.Exit(1)
