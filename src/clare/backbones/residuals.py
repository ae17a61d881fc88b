"""The residual branches of timm's blocks: what an adapter beside the last of them reads, and what it joins.

A block with an attention and an MLP, one after the other, is two branches, and the adapter stands beside the MLP.
A block that is one branch as a whole (a ConvNeXt's, or attention and MLP in parallel) has the adapter beside all of it.
"""

from collections.abc import Callable
from typing import Any

from timm.models import beit, convnext, eva, swin_transformer, swin_transformer_v2, vision_transformer
from torch import Tensor, nn

from clare.errors import BackboneError

Halves = Callable[..., tuple[Tensor, Tensor]]
"""From a block and its stream, what the last branch reads and what the block returns, to the bit as timm has it."""


def _norms_before(block: Any, x: Tensor, **context: Any) -> tuple[Tensor, Tensor]:
    """Attention and MLP, each behind a norm."""
    # Swin's own attention cuts its map into windows.
    attend = getattr(block, "_attn", block.attn)
    middle = x + block.drop_path1(_scaled(block, 1, attend(block.norm1(x), **context)))
    tokens = middle.flatten(1, -2)
    return middle, (tokens + block.drop_path2(_scaled(block, 2, block.mlp(block.norm2(tokens))))).view_as(middle)


def _norms_behind(block: Any, x: Tensor, **context: Any) -> tuple[Tensor, Tensor]:
    """Attention and MLP, each before a norm."""
    attend = getattr(block, "_attn", block.attn)
    middle = x + block.drop_path1(block.norm1(attend(x, **context)))
    tokens = middle.flatten(1, -2)
    return middle, (tokens + block.drop_path2(block.norm2(block.mlp(tokens)))).view_as(middle)


def _scaled(block: Any, number: int, update: Tensor) -> Tensor:
    """Return what a branch adds times its scale, which is a module, a parameter of the block, or not there."""
    if hasattr(block, f"ls{number}"):
        scaled: Tensor = getattr(block, f"ls{number}")(update)
        return scaled
    scale = getattr(block, f"gamma_{number}", None)
    return update if scale is None else scale * update


def _whole(block: Any, x: Tensor, **context: Any) -> tuple[Tensor, Tensor]:
    """One branch."""
    return x, block(x, **context)


RESIDUALS: dict[type[nn.Module], Halves] = {
    vision_transformer.Block: _norms_before,
    vision_transformer.ResPostBlock: _norms_behind,
    vision_transformer.ParallelScalingBlock: _whole,
    vision_transformer.DiffParallelScalingBlock: _whole,
    vision_transformer.ParallelThingsBlock: _whole,
    eva.EvaBlock: _norms_before,
    eva.EvaBlockPostNorm: _norms_behind,
    beit.Block: _norms_before,
    swin_transformer.SwinTransformerBlock: _norms_before,
    swin_transformer_v2.SwinTransformerV2Block: _norms_behind,
    convnext.ConvNeXtBlock: _whole,
}


def halves_of(block: nn.Module, where: str = "a block") -> Halves:
    """Return the function that gives a bare block's two halves; a block of another kind is refused."""
    kind = type(block)
    if kind in RESIDUALS:
        return RESIDUALS[kind]
    remedy = (
        "detach what was attached before"
        if type(getattr(block, "inner", None)) in RESIDUALS
        else "choose a model whose blocks are one of timm's " + ", ".join(known.__name__ for known in RESIDUALS)
    )
    raise BackboneError(f"{where} of the backbone is a {kind.__name__}, which an adapter cannot join; {remedy}")
