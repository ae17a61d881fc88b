"""The plan for a GPU: every command is one that its benchmark takes, and a failure keeps no other from running."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_every_command_is_understood(script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = script("on_gpu").PLAN
    for words in plan.values():
        name = Path(words[0]).stem
        if name != "run_gpu_tests":
            monkeypatch.setattr("sys.argv", [*words, "--out", "found.json"])
            assert script(name).parse().out == Path("found.json")
        assert (Path(__file__).parents[2] / words[0]).is_file()


def test_a_failure_keeps_no_other_from_running(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        return 3 * ("b.py" in command)

    ended = script("on_gpu").run_all({"one": ("a.py",), "two": ("b.py", "--x"), "three": ("c.py",)}, tmp_path, run)
    assert [words.split(" after")[0] for words in ended.values()] == ["done", "failed with 3", "done"]
    assert commands[1] == [sys.executable, "b.py", "--x", "--out", str(tmp_path / "two.json")]


@pytest.mark.slow
def test_the_plan_can_be_listed(script: Callable[[str], ModuleType]) -> None:
    listed = subprocess.run([sys.executable, str(script("on_gpu").__file__), "--list"], capture_output=True, text=True)
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == len(script("on_gpu").PLAN)
