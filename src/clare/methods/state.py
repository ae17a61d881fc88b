"""What a method has learnt, taken out of it and put back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clare.errors import ModelError
from clare.growth import make_room
from clare.heads.solved import SolvedHead
from clare.methods.base import Method
from clare.methods.protocols import HasStructure

HEAD = "head."
"""How the names of a head's tensors begin."""
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Snapshot:
    """Everything a method has learnt: structure as JSON values, the rest as tensors."""

    structure: dict[str, Any]
    tensors: dict[str, Tensor]


def structure_of(method: Method) -> dict[str, Any]:
    """Return what is known of a method beside its tensors."""
    own = method.structure() if isinstance(method, HasStructure) else {}
    return {"tasks": [list(task) for task in method.tasks], **own}


def learnt_tensors(method: Method) -> dict[str, Tensor]:
    """Return all tensors but those of the frozen backbone."""
    return {name: tensor for name, tensor in method.state_dict().items() if not name.startswith("backbone.")}


def snapshot_of(method: Method) -> Snapshot:
    """Return a copy of everything learnt."""
    tensors = {name: tensor.clone() for name, tensor in learnt_tensors(method).items()}
    return Snapshot(structure_of(method), tensors)


def packed_tensors(method: Method) -> dict[str, Tensor]:
    """Return a copy of the tensors that a model folder keeps, of the head those that the others do not follow from."""
    return _with_head(snapshot_of(method).tensors, method.head.packed)


def _with_head(tensors: Tensors, change: Callable[[Tensors], Tensors]) -> Tensors:
    """Return tensors of which those of the head, by their names there, were changed."""
    own = {name.removeprefix(HEAD): tensor for name, tensor in tensors.items() if name.startswith(HEAD)}
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(HEAD)}
    return others | {HEAD + name: tensor for name, tensor in change(own).items()}


def restore(method: Method, snapshot: Snapshot) -> None:
    """Go back to a snapshot."""
    method.tasks = [tuple(task) for task in snapshot.structure["tasks"]]
    if isinstance(method, HasStructure):
        method.rebuild(snapshot.structure)
    head = method.head
    tensors = _with_head(snapshot.tensors, head.unpacked)
    make_room(method, tensors)
    own = learnt_tensors(method)
    follows = isinstance(head, SolvedHead) and HEAD + "rows" not in tensors
    if follows:
        tensors[HEAD + "rows"] = head.rows.data
    different = sorted(own.keys() ^ tensors.keys()) or [
        name for name, tensor in own.items() if tensor.shape != tensors[name].shape
    ]
    if different:
        raise ModelError(
            f"the saved state does not fit the method: {', '.join(different)}; use the settings it was saved with"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
        if isinstance(head, SolvedHead):
            # Whoever keeps something made of rows knows by the parameter whether they are still the same.
            head.replace(head.solve() if follows else head.rows.data)
