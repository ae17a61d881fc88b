"""Backbones: what is loaded, what is refused and how, and that everything is frozen."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import Tensor

from clare.backbones.vit import Backbone, BackboneSettings, build_embedded, fingerprint, freeze, load_backbone
from clare.errors import BackboneError

MakeBackbone = Callable[..., Backbone]
TINY: dict[str, Any] = {"embed_dim": 24, "depth": 2, "num_heads": 2}


def weights_of(backbone: Backbone) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in backbone.vit.state_dict().items()}


def load_file_settings(path: Path, **sizes: int) -> BackboneSettings:
    return BackboneSettings(weights=str(path), architecture={**TINY, **sizes})


def test_a_model_that_is_no_vit_is_refused() -> None:
    with pytest.raises(BackboneError, match=r"is a ResNet, not a model .* the nearest that works is convnext_tiny"):
        load_backbone(BackboneSettings(name="resnet18", weights="random"))
    with pytest.raises(BackboneError, match="is a Linear"):
        freeze(torch.nn.Linear(2, 2), None)


@pytest.mark.parametrize(
    ("name", "meant"), [("vit_bas_patch16_224", "vit_base_patch16_224"), ("quickdraw-vt", "quickdraw-vit")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(BackboneError, match=rf"no model '{name}'.*did you mean '{meant}'"):
        load_backbone(BackboneSettings(name=name, weights="random"))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("quickdraw-vit", {"bogus": 1}), ("quickdraw-vit", {"embed_dim": 25}), ("vit_tiny_patch16_224", {"bogus": 1})],
)
def test_sizes_that_timm_cannot_build_are_refused(name: str, architecture: dict[str, int]) -> None:
    with pytest.raises(BackboneError, match=rf"could not build '{name}'.*backbone\.architecture"):
        load_backbone(BackboneSettings(name=name, weights="random", architecture=architecture))


def test_a_weights_file_is_loaded_to_the_bit(tiny_backbone: MakeBackbone, tmp_path: Path) -> None:
    saved = tiny_backbone(seed=3)
    save_file(weights_of(saved), tmp_path / "weights.safetensors")
    loaded = load_backbone(load_file_settings(tmp_path / "weights.safetensors"))
    assert loaded.fingerprint == saved.fingerprint
    for name, tensor in saved.vit.state_dict().items():
        assert torch.equal(loaded.vit.state_dict()[name], tensor)


def test_weights_of_half_precision_are_loaded_as_floats(tiny_backbone: MakeBackbone, tmp_path: Path) -> None:
    half = {name: tensor.half() for name, tensor in weights_of(tiny_backbone()).items()}
    save_file(half, tmp_path / "weights.safetensors")
    loaded = load_backbone(load_file_settings(tmp_path / "weights.safetensors"))
    assert {tensor.dtype for tensor in loaded.vit.state_dict().values()} == {torch.float32}
    assert torch.equal(loaded.vit.state_dict()["cls_token"], half["cls_token"].float())


def test_weights_that_do_not_fit_are_named(tiny_backbone: MakeBackbone, tmp_path: Path) -> None:
    weights = weights_of(tiny_backbone())
    del weights["cls_token"]
    weights["extra"] = torch.zeros(1)
    weights["norm.bias"] = torch.zeros(23)
    path = tmp_path / "weights.safetensors"
    save_file(weights, path)
    with pytest.raises(BackboneError) as caught:
        load_backbone(load_file_settings(path))
    message = str(caught.value)
    assert "1 missing (cls_token)" in message
    assert "1 unknown (extra)" in message
    assert "1 of another shape (norm.bias)" in message
    assert str(path) in message
    assert "backbone.name" in message


def test_only_the_first_keys_that_do_not_fit_are_named(tiny_backbone: MakeBackbone, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(weights_of(tiny_backbone()), path)
    with pytest.raises(BackboneError, match=r"missing \(blocks\.2\.\S+, \S+, \S+, …\)"):
        load_backbone(load_file_settings(path, depth=4))


@pytest.mark.parametrize(
    "content", [b"", b"not a safetensors file", struct.pack("<Q", 10**12) + b"{}"], ids=["empty", "text", "length"]
)
def test_an_unreadable_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(BackboneError, match="not a readable safetensors file"):
        load_backbone(load_file_settings(path))


def test_a_cut_file_is_refused(tiny_backbone: MakeBackbone, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(weights_of(tiny_backbone()), path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BackboneError, match="not a readable safetensors file"):
        load_backbone(load_file_settings(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(BackboneError, match=r"no weights file .*backbone\.weights"):
            load_backbone(load_file_settings(path))


def test_the_fingerprint_is_stable_and_depends_on_every_bit(tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone(seed=1)
    assert tiny_backbone(seed=1).fingerprint == backbone.fingerprint
    assert tiny_backbone(seed=2).fingerprint != backbone.fingerprint
    flat = backbone.vit.state_dict()["blocks.1.mlp.fc2.bias"].view(torch.int32)
    flat[5] ^= 1
    assert fingerprint(backbone.vit) != backbone.fingerprint
    flat[5] ^= 1
    assert fingerprint(backbone.vit) == backbone.fingerprint


def test_everything_is_frozen() -> None:
    vit = build_embedded(**TINY, drop_path_rate=0.1).train()
    backbone = freeze(vit, None)
    assert backbone.vit is vit
    assert backbone.settings is None
    assert not any(parameter.requires_grad for parameter in vit.parameters())
    assert not any(module.training for module in vit.modules())


def test_a_classifier_is_dropped() -> None:
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=7, img_size=28, patch_size=7, **TINY)
    backbone = freeze(vit, None)
    assert not any(name.startswith("head.") for name in backbone.vit.state_dict())
    assert backbone.vit(torch.zeros(2, 3, 28, 28)).shape == (2, 24)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["quickdraw-vit", "vit_tiny_patch16_224"])
def test_grey_and_colour_models_are_normalised_by_channel(name: str, channels: int) -> None:
    sizes = {"in_chans": channels, "img_size": 28, "patch_size": 7, **TINY}
    backbone = load_backbone(BackboneSettings(name=name, weights="random", architecture=sizes))
    assert backbone.channels == channels
    assert backbone.mean == backbone.std == (0.5,) * channels
    assert backbone.vit(torch.zeros(1, channels, 28, 28)).shape == (1, 24)


def test_the_normalisation_is_the_models_own() -> None:
    def normalisation(channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        vit = build_embedded(**TINY, in_chans=channels)
        vit.pretrained_cfg = {"mean": (0.1, 0.2, 0.6), "std": (0.4, 0.5, 0.9)}  # type: ignore[assignment]
        backbone = freeze(vit, None)
        return backbone.mean, backbone.std

    assert normalisation(3) == ((0.1, 0.2, 0.6), (0.4, 0.5, 0.9))
    mean, std = normalisation(1)
    assert mean == pytest.approx((0.3,))
    assert std == pytest.approx((0.6,))


@pytest.mark.parametrize("name", ["quickdraw-vit", "vit_tiny_patch16_224"])
def test_the_image_size_can_be_set(name: str) -> None:
    settings = BackboneSettings(name=name, weights="random", image_size=64, architecture={"patch_size": 16, **TINY})
    backbone = load_backbone(settings)
    assert backbone.image_size == 64
    assert backbone.vit(torch.zeros(1, backbone.channels, 64, 64)).shape == (1, 24)


def test_random_weights_follow_the_callers_seed() -> None:
    def load(seed: int) -> str:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return load_backbone(BackboneSettings(weights="random", architecture=TINY)).fingerprint

    assert load(0) == load(0)
    assert load(0) != load(1)


def test_a_file_for_another_image_size_is_taken_as_timm_takes_it(tmp_path: Path) -> None:
    name, path = "vit_tiny_patch16_224", tmp_path / "model.safetensors"
    published = timm.create_model(name, num_classes=0)
    save_file({key: value.contiguous() for key, value in published.state_dict().items()}, path)
    loaded = load_backbone(BackboneSettings(name=name, weights=str(path), image_size=112))
    smaller = timm.create_model(name, num_classes=0, img_size=112)
    expected = checkpoint_filter_fn(published.state_dict(), smaller)
    assert loaded.image_size == 112
    assert all(torch.equal(tensor, expected[key]) for key, tensor in weights_of(loaded).items())
    # Without the size in the settings nobody asked for other positions.
    other = tmp_path / "smaller.safetensors"
    save_file(weights_of(loaded), other)
    with pytest.raises(BackboneError, match=r"1 of another shape \(pos_embed\); check .*image_size"):
        load_backbone(BackboneSettings(name=name, weights=str(other)))
