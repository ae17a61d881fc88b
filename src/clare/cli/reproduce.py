"""`clare reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from clare.cli.console import console, leave_if
from clare.cli.options import BACKBONE


def reproduce(
    experiment: Annotated[str, typer.Argument(help="table1 … table7, figure1 or efficiency.", show_default=False)],
    preset: Annotated[
        list[str] | None, typer.Option(help="Presets to use in place of the paper's, separated by commas; repeatable.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help=f"Lay a backbone over the presets: {BACKBONE}.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas; the experiment's own when left out.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at a time, each in a process of its own with its share of the threads.")
    ] = 1,
    out: Annotated[
        Path, typer.Option(help="Folder for the tables; the runs, which experiments share, are under runs/ in it.")
    ] = Path("runs/reproduce"),
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be run and how long, and stop.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of every run; repeatable.")
    ] = None,
) -> None:
    """Repeat a table or figure of the paper, on its data or on others, and write it beside the paper's numbers."""
    from clare.runner.reproduction import reproduce_command, request_of

    request = request_of(experiment, preset, backbone, seeds, set_ or [], out, jobs)
    leave_if(reproduce_command(console, request, jobs, plan))
