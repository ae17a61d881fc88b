"""`clare check-method`."""

from rich.console import Console
from rich.text import Text

from clare.testing.check import check_method

COLOURS = {"kept": "green", "broken": "red", "does not apply": "dim"}


def check_command(console: Console, name: str) -> int:
    """Print a line for every promise and return the exit code: 1 when one is broken."""
    verdicts = []
    for verdict in check_method(name):
        verdicts.append(verdict)
        line = Text.assemble((f"{verdict.outcome:<15}", COLOURS[verdict.outcome]), verdict.promise)
        console.print(line.append(f": {verdict.reason}") if verdict.reason else line, soft_wrap=True)
    num_broken = sum(verdict.outcome == "broken" for verdict in verdicts)
    if not num_broken:
        console.print("every promise is kept")
        return 0
    verb = "is" if num_broken == 1 else "are"
    console.print(f"{num_broken} of {len(verdicts)} promises {verb} broken", highlight=False)
    return 1
