"""Files of weights: which model they are for, and original checkpoints brought to timm's names."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clare.backbones.named import named_backbone
from clare.backbones.originals import convert
from clare.backbones.vit import load_backbone
from clare.errors import BackboneError
from clare.presets.load import find_backbone


def state_of(name: str) -> dict[str, Tensor]:
    """Return the random weights of a timm model without classifier."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights: dict[str, Tensor] = timm.create_model(name, num_classes=0).state_dict()
    return weights


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("convnext_atto", None),
        ("vit_xsmall_patch16_clip_224", 224),
        pytest.param("convnextv2_atto", None, marks=pytest.mark.slow),
        pytest.param("vit_small_patch16_dinov3", None, marks=pytest.mark.slow),
        pytest.param("eva02_tiny_patch14_224", 224, marks=pytest.mark.slow),
        pytest.param("beit_base_patch16_224", None, marks=pytest.mark.slow),
        pytest.param("swin_tiny_patch4_window7_224", None, marks=pytest.mark.slow),
        pytest.param("swinv2_tiny_window8_256", None, marks=pytest.mark.slow),
        pytest.param("deit3_small_patch16_224", 224, marks=pytest.mark.slow),
        pytest.param("deit_tiny_distilled_patch16_224", 224, marks=pytest.mark.slow),
        pytest.param("vit_base_patch16_siglip_224", 224, marks=pytest.mark.slow),
    ],
)
def test_a_file_is_recognised_by_its_shapes(name: str, side: int | None, tmp_path: Path) -> None:
    weights = state_of(name)
    save_file(weights, tmp_path / "weights.safetensors")
    found = named_backbone(str(tmp_path / "weights.safetensors"))
    assert (found.name, found.image_size) == (name, side)
    loaded = load_backbone(found).vit.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in weights.items())


def as_openai(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a CLIP tower under the names of OpenAI's and OpenCLIP's checkpoints."""
    renames = {
        "patch_embed.proj.": "conv1.",
        "norm_pre.": "ln_pre.",
        "blocks.": "transformer.resblocks.",
        ".norm1.": ".ln_1.",
        ".norm2.": ".ln_2.",
        ".attn.qkv.": ".attn.in_proj_",
        ".attn.proj.": ".attn.out_proj.",
        ".mlp.fc1.": ".mlp.c_fc.",
        ".mlp.fc2.": ".mlp.c_proj.",
    }
    original = {}
    for key, value in weights.items():
        for ours, theirs in renames.items():
            key = key.replace(ours, theirs)
        key = "ln_post." + key.removeprefix("norm.") if key.startswith("norm.") else key
        original[f"visual.{key}"] = value
    original["visual.class_embedding"] = original.pop("visual.cls_token").flatten()
    original["visual.positional_embedding"] = original.pop("visual.pos_embed")[0]
    return {**original, "visual.proj": torch.zeros(10, 10), "logit_scale": torch.zeros(())}


def test_a_clip_checkpoint_is_converted_once_when_it_is_named(tmp_path: Path) -> None:
    weights = state_of("vit_xsmall_patch16_clip_224")
    torch.save({"state_dict": as_openai(weights)}, tmp_path / "clip.pt")
    found = find_backbone(str(tmp_path / "clip.pt"))
    assert found.name == "vit_xsmall_patch16_clip_224"
    assert found.weights == str(tmp_path / "clip.safetensors")
    loaded = load_backbone(found).vit.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in weights.items())
    assert named_backbone(str(tmp_path / "clip.safetensors")) == found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"])
def test_a_dinov2_checkpoint_is_converted(name: str, tmp_path: Path) -> None:
    weights = state_of(name)
    original = {key.replace("reg_token", "register_tokens"): value for key, value in weights.items()}
    if "reg4" in name:
        # The original has a position of the class token, which timm adds to the token.
        original["pos_embed"] = torch.cat([torch.zeros(1, 1, 384), original["pos_embed"]], 1)
    torch.save({"teacher": {**original, "mask_token": torch.zeros(1, 384)}}, tmp_path / "dinov2.pth")
    found = named_backbone(str(tmp_path / "dinov2.pth"))
    assert found.name == name
    converted = load_file(tmp_path / "dinov2.safetensors")
    assert all(torch.equal(converted[key], value) for key, value in weights.items())


@pytest.mark.slow
def test_dinov3_checkpoints_are_converted(tmp_path: Path) -> None:
    weights = state_of("vit_small_patch16_dinov3")
    renames = {"gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma", "reg_token": "storage_tokens"}
    original = {}
    for key, value in weights.items():
        for ours, theirs in renames.items():
            key = key.replace(ours, theirs)
        original[key] = value
    original |= {"mask_token": torch.zeros(1, 384), "rope_embed.periods": torch.zeros(16)}
    torch.save(original, tmp_path / "dinov3.pth")
    found = named_backbone(str(tmp_path / "dinov3.pth"))
    assert found.name == "vit_small_patch16_dinov3"
    loaded = load_backbone(found).vit.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in weights.items())


class Evil:
    """What would run code if it were unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("unpickled",))


def test_a_checkpoint_with_more_than_tensors_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"state_dict": {"weight": torch.zeros(2), "more": Evil()}}, tmp_path / "hidden.pth")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    for name, message in (
        ("hidden", "cannot be read as a file of tensors alone"),
        ("missing", "cannot be read as a file of tensors alone"),
        ("other", "holds the weights of no model that timm can convert"),
    ):
        with pytest.raises(BackboneError, match=message):
            convert(tmp_path / f"{name}.pth")
    assert "unpickled" not in capsys.readouterr().out


def test_a_folder_or_preset_cannot_have_a_checkpoint_unpickled(tmp_path: Path) -> None:
    torch.save(as_openai(state_of("vit_xsmall_patch16_clip_224")), tmp_path / "clip.pt")
    settings = find_backbone("vit_xsmall_patch16_clip_224").model_copy(update={"weights": str(tmp_path / "clip.pt")})
    with pytest.raises(BackboneError, match="is not a readable safetensors file"):
        load_backbone(settings)
