"""The same folder and the same pictures are answered alike by the command line and over HTTP."""

import json
from functools import partial
from pathlib import Path

from fastapi.testclient import TestClient
from own_worlds import drawings, tiny_weights, write_pictures
from typer.testing import CliRunner

from clare.cli.main import app
from clare.own.taught import TaughtModel
from clare.serve.app import make_app
from clare.serve.service import Options


def test_command_line_and_http_answer_alike(tmp_path: Path) -> None:
    model = tmp_path / "model"
    TaughtModel.create(model, tiny_weights(tmp_path), device="cpu").teach(drawings("cat", "dog", "elk"), mode="quick")
    pictures = sorted(write_pictures(tmp_path / "pictures", "cat", "dog", number=2, seed=1).rglob("*.png"))
    words = ["predict", model, *pictures, "--json", "--top", "2", "--threshold", "0.3", "--device", "cpu"]
    printed = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False).stdout.splitlines()
    options = Options(model, partial(TaughtModel.open, device="cpu"), ())
    files = [("images", (str(path), path.read_bytes())) for path in pictures]
    with TestClient(make_app(options)) as client:
        answers = client.post("/predict?top=2&threshold=0.3", files=files).json()["answers"]
    assert len(answers) == len(pictures)
    assert answers == [json.loads(line) for line in printed]
