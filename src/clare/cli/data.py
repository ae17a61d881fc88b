"""`clare data`."""

from typing import Annotated

import typer

from clare.cli.console import console, leave_if
from clare.cli.options import Backbone, Preset


def data(
    preset: Preset,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Download what is missing, or unpack what you have downloaded.")
    ] = False,
    method: Annotated[
        str | None, typer.Option(help="The method of the run, where the preset asks for path/to/file.py:Class.")
    ] = None,
    backbone: Backbone = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as data.root=/mnt; repeatable."),
    ] = None,
) -> None:
    """Say which data and weights a preset needs, what of it is here, where the rest comes from, and fetch it."""
    from clare.runner.supplies import data_command

    problems, is_ready = data_command(console, preset, method, backbone, set_ or [], fetch)
    leave_if(problems)
    raise typer.Exit(int(not is_ready))
