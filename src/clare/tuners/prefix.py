"""Keys and values put before those of an image inside the attention of some blocks.

Shapes: B images (or 1 for all alike), N tokens, P prefix tokens, H heads, E width of a head.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import cast

import torch
import torch.nn.functional as F
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from clare.backbones.attach import bare_blocks
from clare.backbones.families import Model
from clare.tuners.limits import unfit
from clare.tuners.tuner import Attachment

Prefix = tuple[Tensor, Tensor]
"""Keys and values, each of shape (B, P, H * E)."""


def prefixed_attention(attention: Attention, x: Tensor, prefix: Prefix) -> Tensor:
    """Return what timm's attention makes of x when every token also sees the prefix, which no norm touches."""
    num_images, num_tokens, _ = x.shape
    heads = (attention.num_heads, attention.head_dim)
    q, k, v = attention.qkv(x).reshape(num_images, num_tokens, 3, *heads).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = attention.q_norm(q), attention.k_norm(k)
    k, v = (
        torch.cat(
            [part.to(own.dtype).reshape(*part.shape[:2], *heads).transpose(1, 2).expand(num_images, -1, -1, -1), own], 2
        )
        for part, own in zip(prefix, (k, v), strict=True)
    )
    if attention.fused_attn:
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=attention.attn_drop.p if attention.training else 0.0)
    else:
        seen = attention.attn_drop((q * attention.scale @ k.mT).softmax(-1)) @ v
    seen = attention.norm(seen.transpose(1, 2).flatten(2))
    # timm gates attention from 1.0.30 on.
    gate = getattr(attention, "gate", None)
    if gate is not None:
        seen = seen * gate(x).sigmoid()
    result: Tensor = attention.proj_drop(attention.proj(seen))
    return result


class PrefixTuner(Attachment):
    """Prefixes for the first blocks of a ViT; it owns no values, and without any the backbone is as it was."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        blocks = bare_blocks(model)
        if not all(type(block) is Block and type(block.attn) is Attention for block in blocks):
            raise unfit(model, "prefixes of attention", "whose blocks are not timm's plain Block with plain Attention")
        self.width = cast(nn.Linear, blocks[0].get_submodule("attn.qkv")).out_features // 3
        """How many numbers a key of all heads together has."""
        self.prefixes: dict[int, Prefix] = {}
        self.attach(model)

    def joined(self, prefixes: Sequence[Prefix]) -> AbstractContextManager[None]:
        """Let the first blocks see these prefixes, one for each, during a forward pass."""
        return self.switched(prefixes=dict(enumerate(prefixes)))

    def act(self, index: int, inner: nn.Module, x: Tensor, **context: Tensor) -> Tensor:
        """Run a block as it is, or with its prefix inside its attention."""
        block, prefix = cast(Block, inner), self.prefixes.get(index)
        if prefix is None:
            plain: Tensor = block(x)
            return plain
        x = x + block.drop_path1(block.ls1(prefixed_attention(cast(Attention, block.attn), block.norm1(x), prefix)))
        result: Tensor = x + block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
        return result
