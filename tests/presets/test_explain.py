"""What decided a setting: preset, overlay or command line, and nothing else."""

from pathlib import Path

import pytest

from clare.cli.listing import resolved
from clare.methods import METHODS
from clare.presets.layers import DEFAULT, explain
from clare.presets.load import make_experiment, read_layers, values_of

PRESET = """
extends = "quickdraw"
seed = 7
[stream]
increment = 5
[method]
epochs = 3
momentum = 0.5
[method.head]
kind = "aligned"
scale = 9.0
align_epochs = 4
[methods.finetune]
epochs = 4
[methods.finetune.features]
blocks = 2
"""
OVERLAY = """
[backbone]
name = "quickdraw-vit"
[method]
epochs = 5
[method.head]
align_epochs = 6
[datasets.quickdraw.methods.finetune]
learning_rate = 0.25
"""


@pytest.fixture
def preset(tmp_path: Path) -> str:
    (tmp_path / "mine.toml").write_text(PRESET)
    (tmp_path / "over.toml").write_text(OVERLAY)
    return f"{tmp_path / 'mine.toml'}+{tmp_path / 'over.toml'}"


def origins(preset: str, method: str, *overrides: str) -> dict[str, str]:
    found = make_experiment(preset, method, overrides).model_dump(mode="json")
    return {key: origin for key, _, origin in explain(read_layers(preset), found, values_of(overrides))}


def test_the_last_layer_that_says_something_decides(preset: str) -> None:
    found = origins(preset, "finetune", "method.momentum=0.1", "stream.increment=2")
    assert found["seed"] == found["method.head.kind"] == found["method.features.blocks"] == "preset mine"
    # What a preset extends is part of it.
    assert found["data.dataset"] == found["method.batch_size"] == "preset mine"
    assert found["method.head.align_epochs"] == found["method.learning_rate"] == "overlay over"
    assert found["method.momentum"] == found["stream.increment"] == "command line"
    assert found["method.weight_decay"] == found["method.head.align_samples"] == "default"
    # A method's own table goes before that of all methods, wherever each stands.
    assert found["method.epochs"] == "preset mine"
    assert set(found.values()) == {"preset mine", "overlay over", "command line", "default"}


def test_what_another_kind_of_head_does_not_have_is_gone(preset: str) -> None:
    found = origins(preset, "finetune", "method.head.kind=discriminant")
    assert (found["method.head.kind"], found["method.head.scale"]) == ("command line", "preset mine")
    assert found["method.head.shrinkage"] == "default"
    assert "method.head.align_epochs" not in found


def test_a_kind_that_a_method_cannot_have_decides_nothing(preset: str) -> None:
    found = origins(preset, "simplecil")
    assert (found["method.head.kind"], found["method.head.scale"]) == ("default", "preset mine")


@pytest.mark.parametrize("method", list(METHODS))
def test_what_nobody_decided_has_its_default(method: str) -> None:
    values = resolved("cub200-50x4+vits14-dinov2", method)
    own = METHODS.get(method).settings_type().model_dump(mode="json")
    for key, value, origin in explain(read_layers("cub200-50x4+vits14-dinov2"), values, {}):
        section, _, rest = key.partition(".")
        if section == "method" and origin == DEFAULT and rest != "name" and not rest.startswith("head."):
            default = own
            for part in rest.split("."):
                default = default[part]
            assert value == default, key
