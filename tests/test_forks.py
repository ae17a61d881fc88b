"""Processes forked from one that has torch imported behave as fresh ones do."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

StartPython = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=[False, True], ids=["forked", "fresh"])
def end(request: pytest.FixtureRequest, start_python: StartPython) -> Callable[..., tuple[int, str, str]]:
    """Return end(*arguments, cwd=None): the code, the output and the messages of a process that has ended."""

    def end(*arguments: str | Path, cwd: Path | None = None) -> tuple[int, str, str]:
        process = start_python(*arguments, cwd=cwd, fresh=request.param)
        output, messages = process.communicate()
        return process.returncode, output, messages

    return end


WORDS = "import os, sys; print(__name__, sys.argv, os.getcwd(), os.getppid(), 'pytest' in sys.modules)"


def test_words_and_folder_are_those_that_were_given(end: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    def said(*words: str) -> tuple[int, str, str]:
        return 0, f"__main__ {list(words)} {tmp_path} {os.getpid()} False\n", ""

    (tmp_path / "script.py").write_text(WORDS)
    assert end("-c", WORDS, "a b", "c", cwd=tmp_path) == said("-c", "a b", "c")
    assert end("script.py", "a b", cwd=tmp_path) == said("script.py", "a b")
    assert end("-m", "script", "a b", cwd=tmp_path) == said(str(tmp_path / "script.py"), "a b")
    assert end("-m", "clare", "--version")[1].startswith("clare ")


def test_each_ends_in_its_own_way(end: Callable[..., tuple[int, str, str]]) -> None:
    assert end("-c", "import sys; sys.exit(7)") == (7, "", "")
    assert end("-c", "import sys; sys.exit('no')") == (1, "", "no\n")
    code, _, messages = end("-c", "raise ValueError('no')")
    assert (code, messages.splitlines()[-1]) == (1, "ValueError: no")
    assert end("-c", "raise KeyboardInterrupt")[0] == -signal.SIGINT
    assert end("-c", "import os; os.abort()")[0] == -signal.SIGABRT
    assert end("-c", "import atexit; atexit.register(print, 'last')") == (0, "last\n", "")


def test_what_is_forked_has_torch_and_neither_threads_nor_numbers(start_python: StartPython) -> None:
    code = (
        "import os, sys; print('torch' in sys.modules, len(os.listdir('/proc/self/task')));"
        "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1).item())"
    )
    (first, one), (second, other) = (start_python("-c", code).communicate()[0].splitlines() for _ in range(2))
    assert first == second == "True 1"
    assert not set(one.split()) & set(other.split())


def test_one_leaves_no_trace_in_the_next(start_python: StartPython) -> None:
    change = "import os, sys, clare; os.environ['SEEN'] = sys.modules['seen'] = clare.seen = 'yes'; os.chdir('/')"
    assert start_python("-c", change).wait() == 0
    look = (
        "import os, sys, clare; print('SEEN' in os.environ, 'seen' in sys.modules, hasattr(clare, 'seen'), os.getcwd())"
    )
    assert start_python("-c", look).communicate()[0] == f"False False False {Path.cwd()}\n"


def test_one_can_be_killed(start_python: StartPython) -> None:
    process = start_python("-c", "import time; print('here', flush=True); time.sleep(600)")
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
