"""Which timm model a file of weights is for, recognised by the names and shapes in it."""

from collections.abc import Iterable, Mapping

import timm
from torch import Tensor

from clare.backbones.hub import outline
from clare.backbones.vit import CLASSIFIER

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
UNCOMMON = ("norm_pre.", "attn_pool.", "fc_norm.", "dist_token")
"""What a plain ViT has not: norms before the blocks, another pooling, a token for distillation."""
POSITIONS = ("pos_embed", "rope.periods")
"""What depends on the size of the images."""


def is_plain(shapes: Shapes) -> bool:
    """Tell whether weights are of a ViT or a DINOv2 that is like all others of its width and patches."""
    if not {"patch_embed.proj.weight", "pos_embed", "cls_token"} <= shapes.keys():
        return False
    if any(key.startswith(UNCOMMON) for key in shapes) or any(
        mark in shapes for marks, _ in FAMILIES for mark in marks
    ):
        return False
    # DeiT 3 scales its branches as DINOv2 does, and has no position for the class token.
    has_class_position = (shapes["pos_embed"][1] - 1) ** 0.5 % 1 == 0
    return has_class_position or "blocks.0.ls1.gamma" not in shapes or "reg_token" in shapes


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


def _compared(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return the shapes that tell models apart."""
    return {key: shape for key, shape in shapes.items() if key not in (*CLASSIFIER, *POSITIONS)}
