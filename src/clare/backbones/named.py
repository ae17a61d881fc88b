"""The backbone that a user names: one that timm has, or a file with its weights."""

from collections.abc import Collection
from pathlib import Path

import timm
from safetensors import SafetensorError, safe_open

from clare.backbones.vit import EMBEDDED_ARCHITECTURE, BackboneSettings, check_name
from clare.errors import BackboneError

WIDTHS = {192: "tiny", 384: "small", 768: "base", 1024: "large"}


def is_weights_file(name: str) -> bool:
    """Tell whether a name means a file of weights."""
    return name.endswith(".safetensors") or Path(name).is_file()


def named_backbone(name: str) -> BackboneSettings:
    """Return the settings of a local weights file, or of a name that timm has; others are refused."""
    if is_weights_file(name):
        return _from_file(Path(name))
    check_name(name)
    return BackboneSettings(name=name)


def is_timm_model(name: str) -> bool:
    """Tell whether timm has a model of this name, whatever its weights are called."""
    return bool(timm.is_model(name.split(".")[0]))


def _from_file(path: Path) -> BackboneSettings:
    """Find out from the shapes in a weights file which plain ViT it is for."""
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise BackboneError(
            f"{path} is not a readable safetensors file ({error}); give a timm name or a weights file"
        ) from error
    if "patch_embed.proj.weight" not in shapes or "pos_embed" not in shapes:
        raise BackboneError(f"{path} holds no weights of a timm ViT; convert them to timm's names first")
    width, channels, patch, _ = shapes["patch_embed.proj.weight"]
    depth = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    side = round((shapes["pos_embed"][1] - 1) ** 0.5) * patch
    if patch == EMBEDDED_ARCHITECTURE["patch_size"] and channels == 1:
        sizes = {"img_size": side, "embed_dim": width, "depth": depth, "num_heads": max(1, width // 64)}
        changed = {key: value for key, value in sizes.items() if value != EMBEDDED_ARCHITECTURE[key]}
        return BackboneSettings(weights=str(path.resolve()), architecture=changed)
    if width not in WIDTHS:
        raise BackboneError(
            f"{path} has width {width}, which is none of {', '.join(map(str, WIDTHS))}; teach it from Python with "
            "BackboneSettings, which takes any architecture"
        )
    name = _timm_name(WIDTHS[width], patch, shapes.keys())
    if not timm.is_model(name):
        raise BackboneError(
            f"{path} looks like the weights of {name}, which timm does not have; teach it from Python with "
            "BackboneSettings, which takes any name and architecture"
        )
    return BackboneSettings(
        name=name, weights=str(path.resolve()), image_size=side, architecture={"depth": depth, "in_chans": channels}
    )


def _timm_name(size: str, patch: int, keys: Collection[str]) -> str:
    """Return the timm model that has weights of these names."""
    if "reg_token" in keys:
        return f"vit_{size}_patch{patch}_reg4_dinov2"
    return f"vit_{size}_patch{patch}_{'dinov2' if 'blocks.0.ls1.gamma' in keys else '224'}"
