"""The README's section on one's own pictures, typed in as a newcomer would."""

import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from own_worlds import drawings, write_pictures
from PIL import Image
from typer.testing import CliRunner

from clare.cli.main import app
from clare.index import read_index

README = Path(__file__).parents[1] / "README.md"
StartPython = Callable[..., "subprocess.Popen[str]"]


def blocks() -> list[str]:
    """Return the code blocks of the section."""
    section = README.read_text().split("## Your own pictures")[1].split("\n## ")[0]
    return re.findall(r"```\n(.*?)```", section, re.DOTALL)


def lines_of_python() -> str:
    """Return the first lines of Python."""
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]


def commands() -> list[list[str]]:
    """Return the words of each command."""
    return [shlex.split(line, comments=True)[1:] for line in blocks()[0].splitlines()]


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 110


def test_the_readme_counts_all_methods() -> None:
    assert f"The {len(read_index()['methods'])} methods are one file each" in README.read_text()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder with the pictures that the README speaks of."""
    write_pictures(tmp_path / "pictures" / "january", "cat", "house")
    write_pictures(tmp_path / "pictures" / "february", "fish", "tree")
    Image.fromarray(drawings("fish", seed=1)["fish"][0]).save(tmp_path / "unknown.png")
    return tmp_path


def test_the_commands_of_the_readme_run(
    pictures: Path, start_python: StartPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [words[0] for words in commands()]
    assert names == ["learn", "learn", "predict", "undo", "serve"]
    process = start_python("-m", "clare", *commands()[0], cwd=pictures, fresh=True)
    output, messages = process.communicate()
    assert process.returncode == 0, messages
    assert output.strip()
    # A process takes seconds to import torch: the commands between the first and the server share this one.
    monkeypatch.chdir(pictures)
    for words in commands()[1:-1]:
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert result.output.strip()
    server = start_python("-m", "clare", *commands()[-1], "--port", "0", cwd=pictures)
    address = first_address(server)
    with urllib.request.urlopen(f"{address}/healthz") as answer:
        assert answer.status == 200
    with urllib.request.urlopen(address) as answer:
        assert b"<canvas" in answer.read()


def first_address(server: "subprocess.Popen[str]") -> str:
    """Return the address that the server says it listens at."""
    assert server.stdout is not None
    for line in server.stdout:
        found = re.search(r"http://[\d.]+:\d+", line)
        if found:
            return found.group()
    raise AssertionError(server.communicate()[1])


def test_the_lines_of_python_run(pictures: Path, start_python: StartPython) -> None:
    process = start_python("-c", lines_of_python(), cwd=pictures, fresh=True)
    output, messages = process.communicate()
    assert process.returncode == 0, messages
    assert "fish" in output
