"""What a run says of itself: where it stands, how long it still takes, and that it is never silent for long."""

import threading
from io import StringIO

import pytest
from rich.console import Console

from clare.runner.progress import Board, Position, ProgressBars, every


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def printed(console: Console) -> list[str]:
    """Return the lines that were printed."""
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("starts", "num_tasks", "now", "expected"),
    [
        ([], 10, 5.0, None),
        ([0.0], 10, 5.0, None),
        ([0.0, 30.0], 9, 40.0, None),
        ([0.0, 30.0, 80.0], 8, 90.0, 8 * 40.0 - 10.0),
        ([0.0, 30.0, 80.0], 1, 200.0, 0.0),
    ],
)
def test_two_tasks_tell_how_long_the_others_take(
    starts: list[float], num_tasks: int, now: float, expected: float | None
) -> None:
    assert Position("clare", 3, 3 + num_tasks, starts=starts).seconds_left(now) == expected


def test_a_line_says_where_a_run_stands() -> None:
    assert Position("clare").line(0.0) == "clare: getting ready"
    assert Position("clare", 1, 10).line(0.0) == "clare: task 2 of 10"
    assert Position("clare", 1, 10, "evaluate").line(0.0) == "clare: task 2 of 10, evaluate"
    there = Position("clare", 2, 10, "train", 3, 20, [0.0, 60.0, 120.0])
    assert there.line(120.0) == "clare: task 3 of 10, train, epoch 4 of 20, about 8 min left"


def test_a_resumed_run_counts_the_tasks_of_this_process() -> None:
    clock, pipe = Clock(), Console(file=StringIO(), width=40)
    bars = ProgressBars(pipe, "clare [a]", clock)
    for index in range(5, 8):
        clock.now += 30.0
        bars.task(index, 10, ("cat", "dog"))
    bars.step("train", 4)
    bars.epoch(2, 7)
    bars.say()
    expected = [f"clare [a]: task {task} of 10" for task in (6, 7)]
    expected += [f"clare [a]: task 8 of 10{step}, about 2 min left" for step in ("", ", train, epoch 3 of 4")]
    assert printed(pipe) == expected


def test_a_terminal_shows_the_remaining_time_of_a_resumed_run() -> None:
    clock, terminal = Clock(), Console(file=StringIO(), width=120, force_terminal=True, color_system=None)
    with ProgressBars(terminal, "clare", clock) as bars:
        for index in range(5, 8):
            clock.now += 60.0
            bars.task(index, 10, ("cat", "dog"))
        bars.bars.refresh()
    assert "0:03:00" in next(line for line in reversed(printed(terminal)) if "stream" in line)


def test_the_board_says_how_far_the_runs_at_work_are() -> None:
    clock, pipe = Clock(), Console(file=StringIO(), width=40)
    board = Board(pipe, ["clare-1", "clare-2", "linear-1"], clock)
    board.say()
    board.show("clare-1", "task 2 of 3")
    board.show("clare-2", "done")
    board.show("linear-1", "started")
    clock.now = 42.0
    board.say()
    assert printed(pipe)[0] == "waiting"
    assert printed(pipe)[-1] == "clare-1: task 2 of 3, for 42.0 s; linear-1: started, for 42.0 s"


def test_a_pipe_is_told_again_and_again_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clare.runner.progress.SECONDS_BETWEEN_LINES", 0.001)
    for watched in (ProgressBars(Console(file=StringIO()), "a"), Board(Console(file=StringIO()), ["a"])):
        has_spoken = threading.Event()
        monkeypatch.setattr(watched, "say", has_spoken.set)
        with watched:
            assert has_spoken.wait(60)


def test_what_acts_again_ends_with_its_block() -> None:
    threads: list[threading.Thread] = []
    has_acted = threading.Event()

    def act() -> None:
        threads.append(threading.current_thread())
        if len(threads) == 3:
            has_acted.set()

    with every(0.001, act):
        assert has_acted.wait(60)
    assert not threads[0].is_alive()
