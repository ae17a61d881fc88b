"""The command `clare serve`, without serving for long."""

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_service import FakeModel
from rich.console import Console

from clare.cli import serve as command
from clare.cli.main import app
from clare.errors import SettingsError
from clare.serve.service import Options

Run = Callable[..., tuple[str, str, Options]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Run:
    """Return run(**options): the command's output, its warnings and the options of the service it would run."""
    made: list[Options] = []
    make_app = command.make_app
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(command, "load", lambda path, *, method, device: FakeModel(path))
    monkeypatch.setattr(command, "make_app", lambda options: made.append(options) or make_app(options))
    monkeypatch.setattr(command.Server, "run", lambda self, sockets: None)

    def start(**values: Any) -> tuple[str, str, Options]:
        console, errors = Console(record=True, width=40), Console(record=True, width=40)
        defaults = {"host": "127.0.0.1", "port": 0, "token": None, "device": "cpu", "allow_host": [], "limits": []}
        defaults["method"] = None
        command.serve_command(console, errors, folder, **{**defaults, **values})
        return console.export_text(), errors.export_text(), made[-1]

    return start


def test_only_this_machine_is_listened_to_unless_told_otherwise(run: Run) -> None:
    parameters = {each.callback.__name__: each.callback for each in app.registered_commands if each.callback}
    assert parameters["serve"].__defaults__[0] == "127.0.0.1"  # type: ignore[index]
    output, warnings, options = run()
    assert re.search(r"is served at http://127\.0\.0\.1:[1-9]\d*", output)
    assert not warnings
    assert options.hosts is not None
    assert {"localhost", "127.0.0.1", "[::1]"} <= set(options.hosts)


def test_an_open_server_needs_a_token_or_a_name(run: Run) -> None:
    with pytest.raises(SettingsError, match="give --token, or --allow-host"):
        run(host="0.0.0.0")
    _, warnings, options = run(host="0.0.0.0", allow_host=["pictures.example"])
    assert "everyone who can reach" in warnings
    assert "--token" in warnings
    assert options.hosts is not None
    assert "pictures.example" in options.hosts
    _, warnings, options = run(host="0.0.0.0", token="secret")
    assert not warnings
    assert (options.token, options.hosts) == ("secret", None)


def test_names_and_limits_reach_the_service(run: Run) -> None:
    _, _, options = run(allow_host=["pictures.example"], limits=["predict_images=3", "request_seconds = 2.5"])
    assert options.hosts is not None
    assert "pictures.example" in options.hosts
    assert (options.limits.predict_images, options.limits.request_seconds) == (3, 2.5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"limits": ["predict_imags=3"]}, "did you mean 'predict_images'"),
        ({"limits": ["predict_images"]}, "KEY=VALUE"),
        ({"limits": ["predict_images=0"]}, "limit.predict_images"),
        ({"token": " "}, "the token is empty"),
        ({"host": "999.1.1.1", "token": "secret"}, "cannot listen at 999.1.1.1"),
    ],
)
def test_careless_options_are_told_in_a_sentence(run: Run, values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        run(**values)


def test_a_port_in_use_is_told_in_a_sentence(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen at 127.0.0.1 port {port}"):
            run(port=port)


def test_half_of_the_cores_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    # Set first, so that whatever comes after is put back.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("OMP_NUM_THREADS")
    command.share_threads()
    assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (3, "3")
    torch.set_num_threads(1)
    command.share_threads()
    assert torch.get_num_threads() == 1


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("clare.cli.serve", "clare.serve.server"):
        monkeypatch.delitem(sys.modules, name)
    parameters = {each.callback.__name__: each.callback for each in app.registered_commands if each.callback}
    with pytest.raises(SettingsError, match=r"clare\[serve\]"):
        parameters["serve"](tmp_path)
