"""Ways to demand something of a method, and to say what it does instead."""

import re
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from clare.methods.base import Method
from clare.methods.state import structure_of


def keep(condition: bool, otherwise: str) -> None:
    """Raise an AssertionError that says what a method does in place of what it promises."""
    if not condition:
        raise AssertionError(otherwise)


def expect(error: type[BaseException], action: Callable[[], object], otherwise: str, pattern: str = "") -> None:
    """Demand that an action raises an error whose message has a pattern."""
    try:
        action()
    except error as raised:
        keep(re.search(pattern, str(raised)) is not None, f"it says '{raised}', which is not like '{pattern}'")
        return
    raise AssertionError(otherwise)


def keep_same(one: dict[str, Any], other: dict[str, Any], which: str) -> None:
    """Demand that two states agree, and name the first part that does not."""
    different = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    keep(not different, f"{which} differs in '{different[0] if different else ''}'")


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors agree in shape and in every bit."""
    return one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


def all_bytes(module: nn.Module) -> dict[str, Any]:
    """Return type, shape and bytes of every tensor."""
    return {
        name: (tensor.dtype, tensor.shape, tensor.detach().numpy().tobytes())
        for name, tensor in module.state_dict().items()
    }


def everything(method: Method) -> dict[str, Any]:
    """Return all that makes a method what it is."""
    grads = [name for name, parameter in method.named_parameters() if parameter.requires_grad]
    return {**all_bytes(method), "structure": structure_of(method), "grads": grads}
