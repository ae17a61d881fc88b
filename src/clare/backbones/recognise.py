"""Which timm model a file of weights is for, recognised by the names and shapes in it."""

import re
from collections.abc import Iterable, Mapping

import timm
from torch import Tensor

from clare.backbones.hub import outline
from clare.backbones.settings import EMBEDDED
from clare.backbones.vit import CLASSIFIER, EMBEDDED_ARCHITECTURE, EMBEDDED_BASE

Shapes = Mapping[str, tuple[int, ...]]
FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("stem.0.weight", "downsample_layers.0.0.weight", "visual.trunk.stem.0.weight"), ("convnext*",)),
    (("layers.0.blocks.0.attn.logit_scale",), ("swinv2_*",)),
    (("layers.0.blocks.0.attn.qkv.weight",), ("swin_*",)),
    (("rel_pos_bias.relative_position_bias_table", "blocks.0.attn.relative_position_bias_table"), ("beit*",)),
    (("storage_tokens",), ("vit*dinov3*",)),
    (("visual.class_embedding",), ("vit*clip*",)),
    (("blocks.0.gamma_1", "blocks.0.attn.q_proj.weight", "blocks.0.attn.q_bias"), ("vit*dinov3*", "eva*", "vit*rope*")),
)
"""A name that only weights of a family have, and how its models are called; a plain ViT has none of these."""
WIDTHS = {192: "tiny", 384: "small", 768: "base", 1024: "large"}
POSITIONS = ("pos_embed", "rope.periods")
"""What depends on the size of the images."""


def plain_model(shapes: Shapes) -> str | None:
    """Return the drawing model, plain ViT or DINOv2 with parts of these names, whatever its depth and channels are."""
    if not {"patch_embed.proj.weight", "pos_embed"} <= shapes.keys():
        return None
    width, channels, patch, _ = shapes["patch_embed.proj.weight"]
    names = [f"vit_{WIDTHS.get(width)}_patch{patch}_{kind}" for kind in ("224", "dinov2", "reg4_dinov2")]
    bases = {name: name for name in names if timm.is_model(name)}
    if (patch, channels) == (EMBEDDED_ARCHITECTURE["patch_size"], 1):
        bases = {EMBEDDED: EMBEDDED_BASE}
    return next((name for name, base in bases.items() if _parts(outline(base).state_dict()) == _parts(shapes)), None)


def models_like(shapes: Shapes) -> list[str]:
    """Return the timm names of the family that has weights of these names; without a name of one, of plain ViTs."""
    for marks, patterns in FAMILIES:
        if any(mark in shapes for mark in marks):
            return [name for pattern in patterns for name in timm.list_models(pattern)]
    if "patch_embed.proj.weight" not in shapes:
        return []
    patch = shapes["patch_embed.proj.weight"][-1]
    return timm.list_models([f"vit_*patch{patch}_*", f"deit*patch{patch}_*"])


def fitting_model(shapes: Shapes, names: Iterable[str]) -> str | None:
    """Return the first of some timm models with weights of these names and shapes, positions and classifier aside."""
    wanted = _compared(shapes)
    return next((name for name in names if _compared(shapes_of(outline(name).state_dict())) == wanted), None)


def shapes_of(weights: Mapping[str, Tensor]) -> Shapes:
    """Return the shapes of weights by their names."""
    return {key: tuple(value.shape) for key, value in weights.items()}


def _parts(names: Iterable[str]) -> set[str]:
    """Return the names of weights, those of the classifier and of all blocks but the first aside."""
    return {name for name in names if name not in CLASSIFIER and not re.match(r"blocks\.[1-9]", name)}


def _compared(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return the shapes that tell models apart."""
    return {key: shape for key, shape in shapes.items() if key not in (*CLASSIFIER, *POSITIONS)}
