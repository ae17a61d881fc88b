"""The same folder and the same pictures get the same probabilities, whichever way they are asked."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from own_worlds import drawings, odds, tiny_weights, write_pictures
from PIL import Image
from typer.testing import CliRunner

import clare
from clare.cli.main import app
from clare.export.export import export_model
from clare.export.onnx_export import run_onnx
from clare.model.records import Answer
from clare.registry import load_file
from clare.serve.app import make_app
from clare.serve.service import Options

Probabilities = list[dict[str, float]]


def by_predict_proba(model: Path, pictures: list[Path]) -> Probabilities:
    """Ask as scikit-learn does."""
    classifier = clare.load(model, device="cpu")
    return [dict(zip(classifier.classes_.tolist(), row, strict=True)) for row in classifier.predict_proba(pictures)]


def by_guess(model: Path, pictures: list[Path]) -> Probabilities:
    """Ask for the whole answer."""
    return [odds(answer) for answer in clare.load(model, device="cpu").guess(pictures, top=9)]


def by_command_line(model: Path, pictures: list[Path], *options: str) -> list[dict[str, Any]]:
    """Ask `clare predict`."""
    words = ["predict", model, *pictures, "--json", "--device", "cpu", *options]
    printed = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False).stdout
    return [json.loads(line) for line in printed.splitlines()]


def by_http(model: Path, pictures: list[Path], query: str = "top=9") -> list[dict[str, Any]]:
    """Ask a service."""
    files = [("images", (str(path), path.read_bytes())) for path in pictures]
    with TestClient(make_app(Options(model, partial(clare.load, device="cpu"), ()))) as client:
        answers: list[dict[str, Any]] = client.post(f"/predict?{query}", files=files).json()["answers"]
        return answers


def inputs(pictures: list[Path]) -> torch.Tensor:
    """Return pictures as exported models take them."""
    return torch.stack([torch.from_numpy(np.array(Image.open(path)))[None] / 255 for path in pictures])


def by_timm(model: Path, pictures: list[Path]) -> Probabilities:
    """Ask what runs in plain timm."""
    folder = export_model(model, "timm").folder
    settings = clare.load(model, device="cpu").parts.backbone.settings
    loaded, classes = load_file(folder / "load.py", "which an export wrote").load(weights=settings and settings.weights)
    with torch.no_grad():
        return [dict(zip(classes, row, strict=True)) for row in loaded.probabilities(inputs(pictures)).tolist()]


def by_onnx(model: Path, pictures: list[Path]) -> Probabilities:
    """Ask what runs in onnxruntime."""
    export = export_model(model, "onnx")
    _, probabilities = run_onnx((export.folder / "model.onnx").read_bytes(), inputs(pictures))
    names = [info.name for info in clare.load(model, device="cpu").classes]
    return [dict(zip(names, row.tolist(), strict=True)) for row in probabilities]


def pairs(answers: list[dict[str, Any]]) -> Probabilities:
    """Return answers in JSON as probabilities by name."""
    return [{guess["name"]: guess["probability"] for guess in answer["guesses"]} for answer in answers]


WAYS: dict[str, Callable[[Path, list[Path]], Probabilities]] = {
    "guess": by_guess,
    "command line": lambda model, pictures: pairs(by_command_line(model, pictures, "--top", "9")),
    "http": lambda model, pictures: pairs(by_http(model, pictures)),
    "timm": by_timm,
    "onnx": by_onnx,
}


@pytest.mark.parametrize("number", [20, 4], ids=["calibrated", "not calibrated"])
def test_all_ways_give_the_same_probabilities(tmp_path: Path, number: int) -> None:
    model = tmp_path / "model"
    in_memory = clare.Classifier(backbone=tiny_weights(tmp_path), device="cpu")
    in_folder = clare.Classifier(model, backbone=tiny_weights(tmp_path), device="cpu")
    for classifier in (in_memory, in_folder):
        classifier.learn(drawings("cat", "dog", "elk", number=number))
    assert (in_folder.calibration is not None) == (number == 20)
    pictures = sorted(write_pictures(tmp_path / "pictures", "cat", "dog", number=2, seed=1).rglob("*.png"))
    expected = by_predict_proba(model, pictures)
    assert [set(answer) for answer in expected] == [{"cat", "dog", "elk"}] * 4
    np.testing.assert_array_equal(in_memory.predict_proba(pictures), in_folder.predict_proba(pictures))
    for way, ask in WAYS.items():
        found = ask(model, pictures)
        for answer, right in zip(found, expected, strict=True):
            assert answer == pytest.approx(right, abs=1e-4), way


def test_the_answers_are_of_one_schema(tmp_path: Path) -> None:
    model = tmp_path / "model"
    classifier = clare.Classifier(model, backbone=tiny_weights(tmp_path), device="cpu")
    classifier.learn(drawings("cat", "dog", "elk"), mode="quick")
    pictures = sorted(write_pictures(tmp_path / "pictures", "cat", "dog", number=2, seed=1).rglob("*.png"))
    answers = classifier.guess(pictures, top=2, threshold=0.3)
    assert isinstance(answers[0], Answer)
    printed = by_command_line(model, pictures, "--top", "2", "--threshold", "0.3")
    assert printed == by_http(model, pictures, "top=2&threshold=0.3") == [answer.as_json() for answer in answers]
    # A set of names is there where one was asked for.
    assert asdict(answers[0]).keys() - {"one_of"} == printed[0].keys()
