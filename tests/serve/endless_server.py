"""`clare serve` around a fake model that never answers, as a process of its own."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fake_service import FakeModel
from rich.console import Console

from clare.cli import serve as command
from clare.data.images import Pixels
from clare.model.records import Answer


class Endless(FakeModel):
    """Thinks about an image without end."""

    def guess_pixels(self, names: Sequence[str], images: Sequence[Pixels], top: int = 5) -> list[Answer]:
        """Say that the work has begun, and go on with it."""
        (self.path / "at-work").touch()
        time.sleep(600)
        return []


class Clinging:
    """Takes as long to be cleared away where the interpreter ends, when no thread can end the process any more."""

    def __del__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        # The module's names are gone by then.
        sleep(600)


if __name__ == "__main__":
    # What `sys` holds is cleared away last.
    setattr(sys, "clinging", Clinging())  # noqa: B010
    command.load = lambda path, *, method, device: Endless(path)  # type: ignore[assignment, misc, return-value]
    command.serve_command(
        Console(), Console(stderr=True), Path(sys.argv[1]), "127.0.0.1", 0, None, "cpu", [], sys.argv[2:], None
    )
