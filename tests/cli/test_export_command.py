"""`clare export` as a user types it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from clare.classifier.classifier import Classifier
from clare.cli.main import app
from clare.errors import ModelError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the folder of a model of two classes of drawings."""
    random = np.random.RandomState(0)
    examples = {name: [random.randint(0, 256, (28, 28), dtype=np.uint8) for _ in range(3)] for name in ("one", "two")}
    Classifier(tmp_path / "mine", method="simplecil", device="cpu").learn(examples)
    return tmp_path / "mine"


def test_an_export_says_what_it_wrote_and_how_near_it_is(model: Path) -> None:
    arguments = ["export", str(model), "--format", "timm", "--out", str(model.parent / "out")]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"}, catch_exceptions=False)
    assert result.exit_code == 0
    words = " ".join(result.output.split())
    for name in ("classifier.safetensors", "load.py", "README.md"):
        assert str(model.parent / "out" / name) in words
        assert (model.parent / "out" / name).is_file()
    assert "checked with plain timm on 32 embedded drawings" in words


def test_without_a_format_only_the_packages_of_the_core_are_needed(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnx", "onnxruntime", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(app, ["export", str(model)], env={"COLUMNS": "300"}, catch_exceptions=False)
    assert result.exit_code == 0
    assert (model.parent / "mine-timm" / "load.py").is_file()
    with pytest.raises(ModelError, match=r"pip install 'clare\[export\]'"):
        CliRunner().invoke(app, ["export", str(model), "--format", "onnx"], catch_exceptions=False)
    with pytest.raises(ModelError, match="add --format onnx"):
        CliRunner().invoke(app, ["export", str(model), "--out", "mine.onnx"], catch_exceptions=False)


def test_onnx_says_how_it_was_checked(model: Path) -> None:
    arguments = ["export", str(model), "--format", "onnx"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"}, catch_exceptions=False)
    assert result.exit_code == 0
    assert (model.parent / "mine-onnx" / "model.onnx").is_file()
    assert "checked with onnxruntime on 32 embedded drawings" in result.output


def test_mistakes_are_named(model: Path) -> None:
    with pytest.raises(ModelError, match="there is no folder"):
        CliRunner().invoke(app, ["export", str(model.parent / "none")], catch_exceptions=False)
    assert CliRunner().invoke(app, ["export", str(model), "--format", "pickle"]).exit_code == 2
