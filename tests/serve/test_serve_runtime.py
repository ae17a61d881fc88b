"""Features from ONNX Runtime: the same answers over HTTP, also after a lesson, and refusals in a sentence."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from own_worlds import drawings, tiny_weights, write_pictures

import clare
from clare.cli.serve import opener
from clare.errors import ModelError, SettingsError
from clare.export import onnx_features
from clare.serve.app import make_app
from clare.serve.service import Options

FROZEN = {"method": "linear", "settings": {"features": {"blocks": 2, "patches": True, "views": 2}}}
ADAPTED = {"method": "clare", "settings": {"epochs": 1, "probe_epochs": 1}}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the methods of which graphs are made from now on."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    made: list[str] = []
    converted = onnx_features.converted

    def counted(packages: Any, module: Any, name: str, inputs: Any, outputs: Any) -> Any:
        made.append(name)
        return converted(packages, module, name, inputs, outputs)

    monkeypatch.setattr(onnx_features, "converted", counted)
    return made


def taught(folder: Path, **values: Any) -> clare.Classifier:
    """Return a model in a folder that knows three classes."""
    classifier = clare.Classifier(folder / "model", backbone=tiny_weights(folder), device="cpu", **values)
    classifier.learn(drawings("cat", "dog", "elk", number=20))
    return classifier


def answers(client: TestClient, pictures: list[Path]) -> list[dict[str, Any]]:
    """Ask a service."""
    files = [("images", (path.name, path.read_bytes())) for path in pictures]
    found: list[dict[str, Any]] = client.post("/predict?top=9", files=files).json()["answers"]
    return found


def check_alike(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Make sure that answers are the same but for rounding."""
    for one, other in zip(ours, theirs, strict=True):
        odds = [{guess["name"]: guess["probability"] for guess in each["guesses"]} for each in (one, other)]
        assert odds[0] == pytest.approx(odds[1], abs=1e-4)
        assert one["unknown"] == pytest.approx(other["unknown"], abs=1e-3)
        assert one["is_unknown"] == other["is_unknown"]


@pytest.mark.parametrize(
    ("values", "num_graphs"),
    [pytest.param(FROZEN, 1, id="frozen"), pytest.param(ADAPTED, 2, id="adapted", marks=pytest.mark.slow)],
)
def test_both_runtimes_answer_alike_and_after_a_lesson_too(
    tmp_path: Path, graphs: list[str], values: dict[str, Any], num_graphs: int
) -> None:
    classifier = taught(tmp_path, **values)
    assert classifier.calibration is not None
    pictures = sorted(write_pictures(tmp_path / "pictures", "cat", "bus", number=3, seed=1).rglob("*.png"))
    model = tmp_path / "model"
    services = [make_app(Options(model, opener(None, "cpu", runtime), ())) for runtime in ("torch", "onnx")]
    with TestClient(services[0]) as torch_client, TestClient(services[1]) as onnx_client:
        check_alike(answers(torch_client, pictures), answers(onnx_client, pictures))
        assert len(graphs) == 1
        version = classifier.learn(drawings("bus", "van", number=20)).number
        for client in (torch_client, onnx_client):
            while client.get("/healthz").json()["version"] != version:
                time.sleep(0.05)
        ours, theirs = answers(torch_client, pictures), answers(onnx_client, pictures)
    check_alike(ours, theirs)
    assert {guess["name"] for guess in theirs[0]["guesses"]} == {"cat", "dog", "elk", "bus", "van"}
    assert len(graphs) == num_graphs


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ModelError, match=rf"the package {package}, which is missing; run pip install 'clare\[export\]'"
    ):
        opener(None, "auto", "onnx")


def test_a_gpu_and_the_runtime_are_not_asked_for_together() -> None:
    with pytest.raises(SettingsError, match="--runtime onnx computes on the CPU; leave out --device cuda"):
        opener(None, "cuda", "onnx")


@pytest.mark.usefixtures("graphs")
def test_features_that_cannot_be_expressed_or_differ_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, kind = tmp_path / "model", type(taught(tmp_path, **FROZEN).parts.method)
    run = onnx_features.run
    with monkeypatch.context() as patch:
        patch.setattr(onnx_features, "run", lambda session, images: run(session, images) * 1.1)
        with pytest.raises(
            ModelError, match=r"ONNX Runtime's features of linear differ by .*; leave out --runtime onnx"
        ):
            opener(None, "cpu", "onnx")(model)
    features = kind.features
    with monkeypatch.context() as patch:
        patch.setattr(
            kind, "features", lambda self, images: features(self, images) * float(torch.linalg.eig(images)[0])
        )
        with pytest.raises(ModelError, match=r"linear cannot be expressed in ONNX .*without --runtime onnx"):
            opener(None, "cpu", "onnx")(model)
