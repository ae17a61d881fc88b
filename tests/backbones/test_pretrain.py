"""Pretraining small models of any family on drawings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from clare.backbones.families import family_of
from clare.backbones.pretrain import PretrainSettings, pretrain
from clare.backbones.vit import BackboneSettings, load_backbone
from clare.data.sources import Dataset
from clare.data.stream import Stream
from clare.errors import BackboneError
from clare.files import write_tensors

SMALL: dict[str, dict[str, Any]] = {
    "quickdraw-vit": {"embed_dim": 24, "depth": 2, "num_heads": 2},
    "convnext_atto": {"in_chans": 1, "patch_size": 1, "dims": (8, 12, 16, 24), "depths": (1, 1, 1, 1)},
    "swin_tiny_patch4_window7_224": {
        "in_chans": 1,
        "img_size": 28,
        "patch_size": 1,
        "embed_dim": 12,
        "depths": (1, 1, 1),
        "num_heads": (1, 2, 2),
    },
}


def drawings(stream: Stream) -> Dataset:
    """Return the first task of a stream as a data set."""
    task = stream.tasks[0]
    return Dataset("drawings", task.classes, task.train, task.train)


@pytest.mark.parametrize("name", SMALL)
def test_any_architecture_is_pretrained_and_its_weights_load(
    name: str, tiny_stream: Callable[..., Stream], tmp_path: Path
) -> None:
    settings = PretrainSettings(epochs=2, batch_size=8, name=name, architecture=SMALL[name])
    size = 28 if name == "convnext_atto" else None
    backbone = BackboneSettings(name=name, weights="random", image_size=size, architecture=SMALL[name])
    losses: list[float] = []
    found = pretrain(drawings(tiny_stream()), settings, torch.device("cpu"), lambda _, loss: losses.append(loss))
    assert len(losses) == 2
    assert 0 <= found.accuracy <= 1
    again = pretrain(drawings(tiny_stream()), settings, torch.device("cpu"), lambda _, loss: None)
    assert all(torch.equal(again.weights[key], value) for key, value in found.weights.items())
    write_tensors(tmp_path / "small.safetensors", found.weights)
    loaded = load_backbone(backbone.model_copy(update={"weights": str(tmp_path / "small.safetensors")}))
    assert all(torch.equal(loaded.vit.state_dict()[key], value) for key, value in found.weights.items())
    assert (loaded.image_size, loaded.channels) == (28, 1)
    assert len(family_of(loaded.vit).ends(loaded.vit)) == len(SMALL[name].get("depths", (1, 1)))


def test_bf16_computes_otherwise_and_keeps_weights_in_full(tiny_stream: Callable[..., Stream]) -> None:
    few = {"epochs": 1, "batch_size": 8, "architecture": SMALL["quickdraw-vit"]}
    full, half = (
        pretrain(
            drawings(tiny_stream()), PretrainSettings(**few, precision=precision), torch.device("cpu"), lambda *_: None
        )
        for precision in ("auto", "bf16")
    )
    assert {value.dtype for value in half.weights.values()} == {torch.float32}
    assert any(not torch.equal(half.weights[key], value) for key, value in full.weights.items())
    assert all(torch.allclose(half.weights[key], value, atol=0.01) for key, value in full.weights.items())


def test_what_cannot_be_pretrained_is_refused(tiny_stream: Callable[..., Stream]) -> None:
    colour = PretrainSettings(name="convnext_atto")
    with pytest.raises(BackboneError, match="the drawings are grey, but the model takes 3 channels; set in_chans to 1"):
        pretrain(drawings(tiny_stream()), colour, torch.device("cpu"), lambda _, loss: None)
