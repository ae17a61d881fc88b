"""Put attachments around the blocks of a plain timm ViT, and take them out again."""

from collections.abc import Callable
from typing import cast

from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from clare.errors import BackboneError


def replace_blocks(vit: VisionTransformer, wrap: Callable[[Block, int], nn.Module]) -> None:
    """Put every block into what `wrap` makes of it; `wrap` keeps the block as its attribute `block`."""
    for index, block in enumerate(vit.blocks):
        if type(block) is not Block:
            kind = type(block).__name__
            remedy = (
                "detach what was attached before"
                if isinstance(getattr(block, "block", None), Block)
                else "choose a ViT made of timm's plain Block"
            )
            raise BackboneError(f"block {index} of the backbone is a {kind}, which an adapter cannot join; {remedy}")
    for index, block in enumerate(list(vit.blocks)):
        vit.blocks[index] = wrap(cast(Block, block), index)


def restore_blocks(vit: VisionTransformer) -> None:
    """Undo `replace_blocks`."""
    for index, wrapper in enumerate(list(vit.blocks)):
        vit.blocks[index] = cast(Block, wrapper.block)
