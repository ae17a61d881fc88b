"""Real processes: a server, its child, and what is left when either is killed."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fake_service import form, png
from own_worlds import odds

from clare.backbones.vit import BackboneSettings, build_embedded
from clare.classifier.classifier import Classifier, load
from clare.files import write_tensors

Start = Callable[..., "subprocess.Popen[str]"]
Serve = Callable[..., tuple["subprocess.Popen[str]", httpx.Client]]

NUM_EPOCHS = 3000
"""So many that learning is still under way when a process is killed."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model folder with two classes, on a tiny backbone."""
    folder = tmp_path_factory.mktemp("real")
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        write_tensors(folder / "tiny.safetensors", build_embedded(**sizes).state_dict())
    backbone = BackboneSettings(weights=str(folder / "tiny.safetensors"), architecture=sizes)
    settings = {"epochs": NUM_EPOCHS, "adapter": {"bottleneck": 4}}
    model = Classifier(folder / "model", backbone=backbone, method="clare", settings=settings, device="cpu")
    random = np.random.RandomState(0)
    classes = {
        name: [random.randint(low, low + 60, (28, 28)).astype(np.uint8) for _ in range(6)]
        for name, low in (("dark", 0), ("bright", 190))
    }
    model.learn(classes, mode="quick")
    return folder / "model"


@pytest.fixture
def model(template: Path, tmp_path: Path) -> Path:
    """Return a copy of the model folder."""
    subprocess.run(["cp", "-r", str(template), str(tmp_path / "model")], check=True)
    return tmp_path / "model"


@pytest.fixture
def serve(start_python: Start) -> Iterator[Serve]:
    """Return start(model, *options): a server at a free port that listens, and a client of it."""
    with ExitStack() as clients:

        def start(model: Path, *options: str) -> tuple["subprocess.Popen[str]", httpx.Client]:
            server = start_python("-m", "clare", "serve", model, "--port", "0", "--device", "cpu", *options)
            assert server.stdout is not None
            line = server.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert address, line + str(server.stderr and server.stderr.read())
            return server, clients.enter_context(httpx.Client(base_url=address.group(), timeout=60))

        yield start


def learn(client: httpx.Client, label: str, mode: str) -> str:
    """Send images of a new class and another one, and return the job."""
    files = [("images", (f"{number}.png", png(100 + number))) for number in range(6)]
    labels = [f"{label} {number % 2}" for number in range(6)]
    answer = client.post(f"/learn?mode={mode}", files=files, data={"labels": labels})
    assert answer.status_code == 202, answer.text
    job: str = answer.json()["job"]
    return job


def until(client: httpx.Client, job: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait for something to be true of a job."""
    while not done(shown := client.get(f"/jobs/{job}").json()):
        assert shown["state"] != "failed", shown
        time.sleep(0.05)
    return dict(shown)


def is_training(shown: dict[str, Any]) -> bool:
    """Tell whether a job is in the middle of learning."""
    return bool(shown["step"].startswith("train, epoch"))


def children(server: "subprocess.Popen[str]") -> list[int]:
    """Return the processes of jobs that a server has started."""
    started = [path.read_text().split() for path in Path(f"/proc/{server.pid}/task").glob("*/children")]
    return [int(pid) for pids in started for pid in pids if b"teach" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_alive(pid: int) -> bool:
    """Tell whether a process is at work."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def content(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder but the lock, whose file a killed holder leaves and which blocks nobody."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != ".lock"}


@pytest.mark.slow
def test_a_killed_child_or_server_leaves_the_last_whole_model(serve: Serve, model: Path) -> None:
    before = content(model)
    server, client = serve(model)
    image = {"images": ("a.png", png(0))}
    version = client.post("/predict", files=image).json()["version"]
    (answer,) = client.post("/predict", files=image).json()["answers"]
    (plain,) = load(model, device="cpu").guess([png(0)])
    assert answer["image"] == "a.png"
    assert [guess["name"] for guess in answer["guesses"]] == list(odds(plain))
    assert [guess["probability"] for guess in answer["guesses"]] == pytest.approx(list(odds(plain).values()), abs=1e-5)
    assert answer["unknown"] == pytest.approx(plain.unknown, abs=1e-5)

    job = learn(client, "new", "learn")
    until(client, job, is_training)
    # While a task is being learnt, the old model answers.
    assert client.post("/predict", files=image).json()["version"] == version
    (child,) = children(server)
    os.kill(child, signal.SIGKILL)
    shown = client.get(f"/jobs/{job}").json()
    while shown["state"] == "running":
        shown = client.get(f"/jobs/{job}").json()
    assert shown["state"] == "failed"
    assert "signal 9" in shown["error"]
    assert content(model) == before

    job = learn(client, "quick", "quick")
    shown = until(client, job, lambda shown: shown["state"] == "done")
    assert shown["change"]["classes"] == ["quick 0", "quick 1"]
    answer = client.post("/predict?top=9", files=image).json()
    assert answer["version"] == version + 1 == load(model, device="cpu").version
    assert len(answer["answers"][0]["guesses"]) == 4

    after = content(model)
    job = learn(client, "new", "learn")
    until(client, job, is_training)
    (child,) = children(server)
    server.kill()
    server.wait()
    while is_alive(child):
        time.sleep(0.05)
    assert content(model) == after

    _, client = serve(model)
    assert client.get("/healthz").json()["version"] == version + 1
    assert client.get(f"/jobs/{job}").status_code == 404
    assert client.post("/undo").status_code == 200
    assert [each["name"] for each in client.get("/model").json()["classes"]] == ["dark", "bright"]
    assert client.post("/predict", files=image).json()["answers"][0]["guesses"][0]["name"] == "dark"


MINE = """
from clare.methods.linear import Linear


class Mine(Linear):
    name = "mine"
    summary = "comes from a file"
"""


@pytest.mark.slow
def test_a_server_and_its_child_have_the_file_that_the_command_names(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    method = f"{tmp_path}/mine.py:Mine"
    Classifier(method=method, device="cpu").save(tmp_path / "model")
    _, client = serve(tmp_path / "model", "--method", method)
    shown = until(client, learn(client, "quick", "quick"), lambda shown: shown["state"] == "done")
    assert shown["change"]["classes"] == ["quick 0", "quick 1"]
    assert client.post("/undo").status_code == 200


def test_a_server_refuses_over_the_wire_and_ends_politely(serve: Serve, model: Path) -> None:
    limits = ["predict_bytes=100000", "request_seconds=0.5"]
    options = [part for limit in limits for part in ("--limit", limit)]
    server, client = serve(model, "--token", "secret", *options)
    # The answer comes although the rest of the body is never taken in, and the connection goes on.
    body, headers = form(("images", "a.png", bytes(20_000_000)))
    for _ in range(2):
        answer = client.post("/predict", content=body, headers=headers)
        assert answer.status_code == 413
    chunks = (body[start : start + 65536] for start in range(0, len(body), 65536))
    assert client.post("/predict", content=chunks, headers=headers).status_code == 413
    assert client.post("/predict", files={"images": ("a.png", png(0))}).status_code == 200
    assert client.post("/undo").status_code == 401
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 403
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        slow.sendall(b"Content-Type: multipart/form-data; boundary=xyz\r\n\r\n--xyz")
        received = b""
        while chunk := slow.recv(4096):
            received += chunk
    assert received.startswith(b"HTTP/1.1 408")
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate()
    assert (server.returncode, errors) == (0, "")
