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


def _plain(block: Any, x: Tensor, **context: Any) -> tuple[Tensor, Tensor]:
    """Norms before each branch, scales behind it."""
    middle = x + block.drop_path1(block.ls1(block.attn(block.norm1(x), **context)))
    return middle, middle + block.drop_path2(block.ls2(block.mlp(block.norm2(middle))))


def _scaled(block: Any, x: Tensor, **context: Any) -> tuple[Tensor, Tensor]:
    """Norms before each branch, and scales that are parameters of the block, or none."""
    update = block.attn(block.norm1(x), **context)
    middle = x + block.drop_path1(update if block.gamma_1 is None else block.gamma_1 * update)
    update = block.mlp(block.norm2(middle))
    return middle, middle + block.drop_path2(update if block.gamma_2 is None else block.gamma_2 * update)


def _post(block: Any, x: Tensor, **context: Any) -> tuple[Tensor, Tensor]:
    """Norms behind each branch."""
    middle = x + block.drop_path1(block.norm1(block.attn(x, **context)))
    return middle, middle + block.drop_path2(block.norm2(block.mlp(middle)))


def _window(block: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Attention in windows of a map, norms before each branch."""
    middle = x + block.drop_path1(block._attn(block.norm1(x)))
    tokens = middle.flatten(1, 2)
    return middle, (tokens + block.drop_path2(block.mlp(block.norm2(tokens)))).view_as(middle)


def _window_post(block: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Attention in windows of a map, norms behind each branch."""
    middle = x + block.drop_path1(block.norm1(block._attn(x)))
    tokens = middle.flatten(1, 2)
    return middle, (tokens + block.drop_path2(block.norm2(block.mlp(tokens)))).view_as(middle)


def _whole(block: Any, x: Tensor, **context: Any) -> tuple[Tensor, Tensor]:
    """One branch."""
    return x, block(x, **context)


RESIDUALS: dict[type[nn.Module], Halves] = {
    vision_transformer.Block: _plain,
    vision_transformer.ResPostBlock: _post,
    vision_transformer.ParallelScalingBlock: _whole,
    vision_transformer.DiffParallelScalingBlock: _whole,
    vision_transformer.ParallelThingsBlock: _whole,
    eva.EvaBlock: _scaled,
    eva.EvaBlockPostNorm: _post,
    beit.Block: _scaled,
    swin_transformer.SwinTransformerBlock: _window,
    swin_transformer_v2.SwinTransformerV2Block: _window_post,
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
