"""Commands as processes of their own, forked from one that has imported everything and computed nothing."""

import ctypes
import importlib
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.writes import Writes

EVERYTHING = (
    *(f"clare.cli.{name}" for name in ("learn", "main", "model", "predict", "serve")),
    *(f"clare.runner.{name}" for name in ("compare", "loggers", "progress", "sweep")),
    *(f"clare.{name}" for name in ("classifier.classifier", "engine.run", "report.write", "serve.app", "serve.teach")),
    *("lightning.fabric", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.pyplot"),
)
SET_DEATH_SIGNAL = 1
SECONDS_TO_END = 300.0
"""A command that takes longer hangs."""
SECONDS_BETWEEN_LOOKS = 0.002


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, or the negative number of the signal, and what it said."""

    code: int
    out: str
    errors: str
    num_writes: int
    seconds: float

    @property
    def was_killed(self) -> bool:
        """Whether it was killed before its end."""
        return self.code == -signal.SIGKILL

    @property
    def is_refusal(self) -> bool:
        """Whether it ended with exit code 2 and one sentence about the error."""
        sentences = [line for line in self.errors.splitlines() if line.startswith("error: ")]
        return self.code == 2 and len(sentences) == 1 and "Traceback" not in self.errors + self.out


def import_all() -> None:
    """Import what commands import, so that each of them starts at once."""
    for module in EVERYTHING:
        importlib.import_module(module)


def clare(folder: Path, *words: str, die_at: int = 0, torn: float = 0.0, kill_after: float | None = None) -> Ended:
    """Run a command in a folder; kill it at a write, or after some seconds."""

    return in_process(folder, lambda: command(*words), die_at, torn, kill_after)


def command(*words: str) -> None:
    """Run a command in this process."""
    from clare.cli.main import main

    sys.argv = ["clare", *words]
    main()


def in_process(
    folder: Path, work: Callable[[], None], die_at: int = 0, torn: float = 0.0, kill_after: float | None = None
) -> Ended:
    """Do some work in a process of its own, and say how it ended."""
    # Not on a disk that may be full.
    beside = folder.parent.parent if os.path.ismount(folder.parent) else folder.parent
    logs = beside / f".{folder.name}.logs"
    logs.mkdir(exist_ok=True)
    started = time.monotonic()
    pid = start(folder, work, logs, Writes(folder, die_at, torn))
    code = wait(pid, kill_after)
    out, errors, counted = ((logs / name).read_text(errors="replace") for name in ("out", "errors", "writes"))
    return Ended(code, out, errors, int(counted or 0), time.monotonic() - started)


def start(folder: Path, work: Callable[[], None], logs: Path, writes: Writes | None = None) -> int:
    """Fork a process that works in a folder, and return its number."""
    for name in ("out", "errors", "writes"):
        (logs / name).write_text("")
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        # Whatever becomes of the attack, nothing it started goes on.
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        for descriptor, name in ((1, "out"), (2, "errors")):
            os.dup2(os.open(logs / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(COLUMNS="300", NO_COLOR="1")
        os.chdir(folder)
        if writes is not None:
            writes.watch()
        work()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if writes is not None:
            writes.is_over = True
            (logs / "writes").write_text(str(writes.count))
        os._exit(code)


def wait(pid: int, kill_after: float | None = None) -> int:
    """Wait for a process, kill it when its time is over, and return its exit code."""
    ends = time.monotonic() + (SECONDS_TO_END if kill_after is None else kill_after)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if kill_after is None:
                raise TimeoutError(f"a process did not end within {SECONDS_TO_END:.0f} s")
            return code
        time.sleep(SECONDS_BETWEEN_LOOKS)


def moments(draw: random.Random, usual: Ended, turn: int | None = None) -> dict[str, float | int]:
    """Draw how a command is killed: first at each of its writes in turn, then at any write or any moment."""
    if turn is not None and turn < usual.num_writes:
        return {"die_at": turn + 1, "torn": draw.random()}
    if draw.random() < 0.5:
        return {"die_at": draw.randint(1, max(1, usual.num_writes)), "torn": draw.random()}
    return {"kill_after": draw.uniform(0, usual.seconds)}
