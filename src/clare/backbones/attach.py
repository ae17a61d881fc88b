"""Put attachments around the blocks and submodules of a timm model, and take them out again."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, nn

from clare.backbones.families import Model, family_of
from clare.backbones.residuals import halves_of
from clare.errors import BackboneError


def bare_blocks(model: Model) -> list[nn.Module]:
    """Return the blocks; refuse those of another kind, or with something attached to them."""
    blocks = [model.get_submodule(name) for name in family_of(model).block_names(model)]
    for index, block in enumerate(blocks):
        halves_of(block, f"block {index}")
    return blocks


def replace_blocks(model: Model, wrap: Callable[[nn.Module, int], nn.Module]) -> None:
    """Put every block into what `wrap` makes of it; `wrap` keeps the block as its attribute `block`."""
    names = family_of(model).block_names(model)
    for index, (name, block) in enumerate(zip(names, bare_blocks(model), strict=True)):
        _set_module(model, name, wrap(block, index))


def restore_blocks(model: Model) -> None:
    """Undo `replace_blocks`."""
    for name in family_of(model).block_names(model):
        _set_module(model, name, model.get_submodule(f"{name}.block"))


class Branches(Protocol):
    """What adds something of its own to the residual stream of every block."""

    @property
    def is_active(self) -> bool:
        """Whether a forward pass is changed."""

    def branch(self, index: int, x: Tensor, /) -> Tensor:
        """Return what one block gets for its tokens, both of shape (B, N, D)."""


class BranchedBlock(nn.Module):
    """A timm block with something added to its residual stream, outside LayerScale and drop-path."""

    def __init__(self, model: Model, block: nn.Module, branches: Branches, index: int) -> None:
        super().__init__()
        self.block = block
        self.index = index
        self._halves, self._family = halves_of(block), family_of(model)
        # A tuple hides the branches from the module tree: they belong to the method, not to the backbone.
        self._branches = (branches,)

    def forward(self, x: Tensor, **context: Tensor) -> Tensor:
        """Run the block, and beside its last branch the added one, on the same residual stream."""
        branches, family = self._branches[0], self._family
        if not branches.is_active:
            outputs: Tensor = self.block(x, **context)
            return outputs
        middle, after = self._halves(self.block, x, **context)
        return family.joined(after, branches.branch(self.index, family.tokens(middle)))


def replace_modules(model: Model, names: Sequence[str], wrap: Callable[[nn.Module, int], nn.Module]) -> None:
    """Put the submodules of these dotted names into what `wrap` makes of them, which keeps each as `inner`."""
    modules = dict(model.named_modules())
    for name in names:
        if f"{name}.inner" in modules:
            raise BackboneError(f"something is attached to '{name}' of the backbone; detach it first")
    for index, name in enumerate(names):
        _set_module(model, name, wrap(modules[name], index))


def restore_modules(model: Model, names: Sequence[str]) -> None:
    """Undo `replace_modules`."""
    for name in names:
        _set_module(model, name, model.get_submodule(f"{name}.inner"))


def bare_parameter(model: Model, name: str) -> nn.Parameter:
    """Return a parameter by its name in the bare model, though its module may be in a wrapper by now."""
    path, _, own = name.rpartition(".")
    module: nn.Module = model.get_submodule(path)
    return dict(module.named_children()).get("inner", module).get_parameter(own)


def _set_module(model: Model, name: str, module: nn.Module) -> None:
    """Put a module in the place of a dotted name."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
