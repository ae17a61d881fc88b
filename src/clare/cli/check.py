"""`clare check-method`."""

from typing import Annotated

import typer
from rich.text import Text

from clare.cli.console import console

COLOURS = {"kept": "green", "broken": "red", "does not apply": "dim"}


def check_method(
    method: Annotated[str, typer.Argument(help="A method's name (see `clare methods`), or path/to/file.py:Class.")],
) -> None:
    """Try every promise of the contract on a method, on a tiny stream and a tiny random backbone."""
    from clare.testing.check import check_method as verdicts_on

    num_promises = num_broken = 0
    for verdict in verdicts_on(method):
        num_promises += 1
        num_broken += verdict.outcome == "broken"
        line = Text.assemble((f"{verdict.outcome:<15}", COLOURS[verdict.outcome]), verdict.promise)
        console.print(line.append(f": {verdict.reason}") if verdict.reason else line, soft_wrap=True)
    if not num_broken:
        console.print("every promise is kept")
        return
    verb = "is" if num_broken == 1 else "are"
    console.print(f"{num_broken} of {num_promises} promises {verb} broken", highlight=False)
    raise typer.Exit(1)
