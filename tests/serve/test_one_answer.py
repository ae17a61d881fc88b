"""The same folder and the same pictures are answered alike by the command line and over HTTP."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from own_worlds import drawings, tiny_weights, write_pictures
from typer.testing import CliRunner

import clare
from clare.classifier.taught import TaughtModel
from clare.cli.main import app
from clare.export.export import export_model
from clare.model.records import Guess
from clare.registry import load_file
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


@pytest.mark.parametrize("calibrated", [True, False])
def test_python_and_exports_give_the_same_probabilities(tmp_path: Path, calibrated: bool) -> None:
    folder = tmp_path / "model"
    model = TaughtModel.create(folder, tiny_weights(tmp_path), device="cpu")
    model.teach(drawings("cat", "dog", "elk", number=20 if calibrated else 4))
    assert (model.calibration is not None) == calibrated
    asked = [image for images in drawings("cat", "dog", number=2, seed=1).values() for image in images]
    expected = torch.tensor([in_order(model, guess) for guess in model.predict(asked, top=3)])
    torch.testing.assert_close(clare.load(folder, device="cpu").probabilities(asked).double(), expected.double())
    export_model(folder, "timm", tmp_path / "timm")
    loader = load_file(tmp_path / "timm" / "load.py", "which an export wrote")
    exported, _ = loader.load(weights=model.backbone.settings and model.backbone.settings.weights)
    inputs = torch.stack([torch.from_numpy(image)[None] / 255 for image in asked])
    with torch.no_grad():
        torch.testing.assert_close(exported.probabilities(inputs).double(), expected.double(), atol=1e-4, rtol=1e-3)


def in_order(model: TaughtModel, guess: Guess) -> list[float]:
    """Return the probabilities of an answer in the order of the model's classes."""
    found = dict(zip(guess.names, guess.probabilities, strict=True))
    return [found[info.name] for info in model.classes]
