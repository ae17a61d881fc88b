"""Tensors that grow from task to task take the sizes of saved ones before these are loaded."""

from collections.abc import Mapping

from torch import Tensor, nn


class Growing:
    """A module of which some parameters and buffers have other sizes after another task; nothing else may."""

    grows: tuple[str, ...]
    """Their names in the module."""


def make_room(whole: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Give what grows the sizes of what was saved; a tensor that has its size stays where it is."""
    for path, module in whole.named_modules():
        for name in module.grows if isinstance(module, Growing) else ():
            own, came = getattr(module, name), saved.get(f"{path}.{name}" if path else name)
            if came is not None and came.shape != own.shape and came.dim() == own.dim():
                room = own.new_zeros(came.shape)
                setattr(module, name, nn.Parameter(room, requires_grad=False) if name in module._parameters else room)
