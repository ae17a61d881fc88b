"""Connections, the log and the end of a server, with real sockets."""

import contextlib
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import endless_server
import httpx
import pytest
from fake_service import form, png

from clare.serve import server as module
from clare.serve.app import make_app
from clare.serve.server import NotAgain, Server, most_connections
from clare.serve.service import Options

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def port(options: Callable[..., Options]) -> Iterator[int]:
    """Return the port of a server in a thread of this process."""
    app = make_app(options(hosts=("127.0.0.1", "localhost"), request_seconds=30))
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server = Server(app, app.state.clear_up)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


def is_closed(connection: socket.socket) -> bool:
    """Wait for the other side to close a connection."""
    connection.settimeout(20)
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1000) == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local"])
def test_headers_that_do_not_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, port: int, sent: bytes) -> None:
    monkeypatch.setattr(module, "HEADER_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        assert is_closed(connection)
    assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200


def test_headers_in_time_are_answered_on_one_connection(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(module, "HEADER_SECONDS", 5)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for _ in range(3):
            assert client.post("/predict", files={"images": ("a.png", png(0))}).status_code == 200


def test_further_connections_are_closed_and_told_once(
    monkeypatch: pytest.MonkeyPatch, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "most_connections", lambda: 3)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(8)]
        assert all(is_closed(connection) for connection in held[3:])
    assert caplog.text.count("more than 3 connections are open") == 1
    # Those that were held are gone, and there is room again.
    while True:
        with contextlib.suppress(httpx.TransportError):
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
            break


def test_no_answer_is_shown_in_a_frame(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        paths = ("/", "/docs", "/assets/index.html", "/healthz", "/jobs/none", "/nowhere")
        answers = [client.get(path) for path in paths] + [client.get("/", headers={"host": "evil.example"})]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 404, 404, 403]
    for answer in answers:
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_connections_are_fewer_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, expected in ((1024, 832), (100_000, 1000), (resource.RLIM_INFINITY, 1000), (64, 8)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, allowed=allowed: (allowed, allowed))
        assert most_connections() == expected


def test_bodies_that_are_only_declared_lock_nobody_out(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(
                b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n"
                b"Content-Type: multipart/form-data; boundary=xyz\r\n\r\n--xyz"
            )
        answer = httpx.post(f"http://127.0.0.1:{port}/predict", files={"images": ("a.png", png(0))}, timeout=60)
        assert answer.status_code == 200


def test_the_same_is_not_logged_again_for_a_while() -> None:
    now = 0.0
    kept = NotAgain(lambda: now)

    def passes(text: str, error: Exception | None = None) -> bool:
        info = None if error is None else (type(error), error, None)
        return kept.filter(logging.LogRecord("a", logging.ERROR, "a.py", 1, text, None, info))

    assert passes("out of descriptors\nsocket 1")
    assert not passes("out of descriptors\nsocket 2")
    assert passes("failed", ValueError("a"))
    assert passes("failed", ValueError("b"))
    assert not passes("failed", ValueError("b"))
    now = module.SECONDS_BETWEEN_SAME + 1
    assert passes("out of descriptors\nsocket 3")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_although_its_work_does_not(start_python: Start, folder: Path, sign: int) -> None:
    server = start_python(endless_server.__file__, folder)
    assert server.stdout is not None
    address = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
    assert address is not None
    body, headers = form(("images", "a.png", png(0)))
    with socket.create_connection(("127.0.0.1", int(address.group().rpartition(":")[2]))) as asking:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        asking.sendall(
            f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode()
        )
        asking.sendall(body)
        while not (folder / "at-work").exists():
            assert server.poll() is None
            time.sleep(0.02)
        errors = ended_by(server, sign)
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("is_in_background", [False, True])
def test_a_server_ends_although_what_it_leaves_is_cleared_away_slowly(folder: Path, is_in_background: bool) -> None:
    # No fork, since those end without clearing anything away.
    command = [sys.executable, endless_server.__file__, str(folder)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As shells start what runs in the background.
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if is_in_background else None,
    ) as server:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert address is not None
        assert httpx.get(f"{address.group()}/healthz", timeout=60).status_code == 200
        try:
            assert ended_by(server, signal.SIGINT) == ""
        finally:
            server.kill()
        assert server.returncode == 0


def ended_by(server: "subprocess.Popen[str]", sign: int) -> str:
    """Tell a server to end, which would think for ten minutes if it were let, and return what it said."""
    os.kill(server.pid, sign)
    _, errors = server.communicate(timeout=60)
    return errors
