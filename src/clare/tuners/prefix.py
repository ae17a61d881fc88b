"""Keys and values put before those of an image inside the attention of some blocks.

Shapes: B images (or 1 for all alike), N tokens, P prefix tokens, H heads, E width of a head.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
import torch.nn.functional as F
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from clare.backbones.attach import bare_blocks, replace_blocks, restore_blocks
from clare.backbones.families import Model
from clare.tuners.limits import unfit

Prefix = tuple[Tensor, Tensor]
"""Keys and values, each of shape (B, P, H * E)."""


def prefixed_attention(attention: Attention, x: Tensor, prefix: Prefix) -> Tensor:
    """Return what timm's attention makes of x when every token also sees the prefix, which no norm touches."""
    num_images, num_tokens, _ = x.shape
    heads = (attention.num_heads, attention.head_dim)
    q, k, v = attention.qkv(x).reshape(num_images, num_tokens, 3, *heads).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = attention.q_norm(q), attention.k_norm(k)
    k, v = (
        torch.cat([_by_head(part, *heads).to(own.dtype).expand(num_images, -1, -1, -1), own], 2)
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


def _by_head(part: Tensor, num_heads: int, width: int) -> Tensor:
    """Return keys or values of a prefix for each head, shape (B, H, P, E)."""
    return part.reshape(len(part), -1, num_heads, width).transpose(1, 2)


class PrefixedBlock(nn.Module):
    """A plain timm block whose attention sees a prefix while there is one."""

    def __init__(self, block: Block, tuner: "PrefixTuner", index: int) -> None:
        super().__init__()
        self.block = block
        self.index = index
        self.tuner = tuner

    def forward(self, x: Tensor) -> Tensor:
        """Run the block as it is, or with the prefix inside its attention."""
        block = self.block
        prefix = self.tuner.prefixes.get(self.index)
        if prefix is None:
            plain: Tensor = block(x)
            return plain
        x = x + block.drop_path1(block.ls1(prefixed_attention(cast(Attention, block.attn), block.norm1(x), prefix)))
        result: Tensor = x + block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
        return result


class PrefixTuner:
    """Prefixes for the first blocks of a ViT; it owns no values, and without any the backbone is as it was."""

    def __init__(self, model: Model) -> None:
        blocks = bare_blocks(model)
        if not all(type(block) is Block and type(block.attn) is Attention for block in blocks):
            raise unfit(model, "prefixes of attention", "whose blocks are not timm's plain Block with plain Attention")
        self.model = model
        self.width = cast(nn.Linear, blocks[0].get_submodule("attn.qkv")).out_features // 3
        """How many numbers a key of all heads together has."""
        self.prefixes: dict[int, Prefix] = {}
        replace_blocks(model, lambda block, index: PrefixedBlock(cast(Block, block), self, index))

    @contextmanager
    def joined(self, prefixes: Sequence[Prefix]) -> Iterator[None]:
        """Let the first blocks see these prefixes, one for each, during a forward pass."""
        self.prefixes = dict(enumerate(prefixes))
        try:
            yield
        finally:
            self.prefixes = {}

    def detach(self) -> None:
        """Take the prefixes out of the backbone, which is then what it was before."""
        restore_blocks(self.model)
