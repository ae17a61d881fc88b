"""Put attachments around the blocks and submodules of a timm model, and take them out again."""

from collections.abc import Callable, Sequence

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


Act = Callable[..., Tensor]
"""(place among those attached to, the module, the stream, what timm hands it beside) -> what comes out in its place."""


class Attached(nn.Module):
    """A module of a timm model in whose place something acts that knows what to do with the module itself."""

    def __init__(self, inner: nn.Module, act: Act, index: int) -> None:
        super().__init__()
        self.inner, self.index = inner, index
        # A bound method hides its owner from the module tree: it belongs to the method, not to the backbone.
        self._act = act

    def forward(self, x: Tensor, **context: Tensor) -> Tensor:
        """Let the act have its way with the module."""
        return self._act(self.index, self.inner, x, **context)


def attach(model: Model, names: Sequence[str], act: Act) -> None:
    """Let an act stand in the place of the submodules of these dotted names."""
    modules = [model.get_submodule(name) for name in names]
    for name, module in zip(names, modules, strict=True):
        if isinstance(module, Attached):
            raise BackboneError(f"something is attached to '{name}' of the backbone; detach it first")
    for index, (name, module) in enumerate(zip(names, modules, strict=True)):
        model.set_submodule(name, Attached(module, act, index))


def restore(model: Model, names: Sequence[str]) -> None:
    """Undo `attach`."""
    for name in names:
        model.set_submodule(name, model.get_submodule(f"{name}.inner"))


def bare_parameter(model: Model, name: str) -> nn.Parameter:
    """Return a parameter by its name in the bare model, though its module may be in a wrapper by now."""
    path, _, own = name.rpartition(".")
    module: nn.Module = model.get_submodule(path)
    return dict(module.named_children()).get("inner", module).get_parameter(own)
