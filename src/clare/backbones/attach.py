"""Put attachments around the blocks and submodules of a plain timm ViT, and take them out again."""

from collections.abc import Callable, Sequence
from typing import cast

from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from clare.errors import BackboneError


def plain_blocks(vit: VisionTransformer) -> list[Block]:
    """Return the blocks; refuse those of another kind, or with something attached to them."""
    for index, block in enumerate(vit.blocks):
        if type(block) is not Block:
            kind = type(block).__name__
            remedy = (
                "detach what was attached before"
                if isinstance(getattr(block, "block", None), Block)
                else "choose a ViT made of timm's plain Block"
            )
            raise BackboneError(f"block {index} of the backbone is a {kind}, which an adapter cannot join; {remedy}")
    return [cast(Block, block) for block in vit.blocks]


def replace_blocks(vit: VisionTransformer, wrap: Callable[[Block, int], nn.Module]) -> None:
    """Put every block into what `wrap` makes of it; `wrap` keeps the block as its attribute `block`."""
    for index, block in enumerate(plain_blocks(vit)):
        vit.blocks[index] = wrap(block, index)


def restore_blocks(vit: VisionTransformer) -> None:
    """Undo `replace_blocks`."""
    for index, wrapper in enumerate(list(vit.blocks)):
        vit.blocks[index] = cast(Block, wrapper.block)


def replace_modules(vit: VisionTransformer, names: Sequence[str], wrap: Callable[[nn.Module, int], nn.Module]) -> None:
    """Put the submodules of these dotted names into what `wrap` makes of them, which keeps each as `inner`."""
    modules = dict(vit.named_modules())
    for name in names:
        if name not in modules:
            raise BackboneError(
                f"the backbone has no part '{name}' to attach to; choose a ViT made of timm's plain Block and Mlp"
            )
        if f"{name}.inner" in modules:
            raise BackboneError(f"something is attached to '{name}' of the backbone; detach it first")
    for index, name in enumerate(names):
        _set_module(vit, name, wrap(modules[name], index))


def restore_modules(vit: VisionTransformer, names: Sequence[str]) -> None:
    """Undo `replace_modules`."""
    for name in names:
        _set_module(vit, name, vit.get_submodule(f"{name}.inner"))


def bare_parameter(vit: VisionTransformer, name: str) -> nn.Parameter:
    """Return a parameter by its name in the bare ViT, though its module may be in a wrapper by now."""
    path, _, own = name.rpartition(".")
    module = vit.get_submodule(path)
    return dict(module.named_children()).get("inner", module).get_parameter(own)


def _set_module(vit: VisionTransformer, name: str, module: nn.Module) -> None:
    """Put a module in the place of a dotted name."""
    parent, _, child = name.rpartition(".")
    setattr(vit.get_submodule(parent), child, module)
