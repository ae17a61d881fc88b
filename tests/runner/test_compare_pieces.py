"""The pieces of a comparison: progress, the board, and who gets which setting."""

import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from rich.console import Console

from clare.presets.load import overrides_for
from clare.runner.progress import Board, progress_of

StartPython = Callable[..., "subprocess.Popen[str]"]


def test_progress_is_read_from_the_record(tmp_path: Path) -> None:
    assert progress_of(tmp_path) == "started"
    record = tmp_path / "record.jsonl"
    record.write_text('{"event": "start", "task_sizes": [2, 2]}\n')
    assert progress_of(tmp_path) == "task 1 of 2"
    with record.open("a") as file:
        file.write('{"event": "task"}\n{"event": "ta')
    assert progress_of(tmp_path) == "task 2 of 2"
    with record.open("a") as file:
        file.write('\n{"event": "task"}\n')
    assert progress_of(tmp_path) == "task 2 of 2"


def test_the_board_has_a_line_for_each_run() -> None:
    terminal = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    with Board(terminal, ["clare-1", "clare-2", "linear-1"]) as board:
        board.show("clare-1", "done")
        board.show("linear-1", "task 2 of 3")
    assert isinstance(terminal.file, StringIO)
    last = [line for line in terminal.file.getvalue().splitlines() if "-" in line][-3:]
    assert [name in line for name, line in zip(("linear-1", "clare-1", "clare-2"), last, strict=True)] == [True] * 3
    assert "task 2 of 3" in last[0]


def test_a_setting_goes_to_the_methods_that_have_it() -> None:
    words = ["method.epochs=2", "method.head.kind=prototype", "stream.increment=2", "method.nonsense=1"]
    methods = ["clare", "simplecil"]
    assert overrides_for("clare", methods, words) == words
    assert overrides_for("simplecil", methods, words) == words[1:]
    assert overrides_for("simplecil", ["simplecil"], words) == words
