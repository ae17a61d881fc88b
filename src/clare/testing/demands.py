"""Ways to demand something of a method or of a run, to say what it does instead, and to stop it on the way."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from clare.engine.context import Silence
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


class Stop(BaseException):
    """Ends a run at once, as a signal would: nothing in the package catches it."""


class StopAtTask(Silence):
    """A listener that stops the run when a task begins."""

    def __init__(self, index: int) -> None:
        self.index = index

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Stop at the chosen task."""
        if index == self.index:
            raise Stop


class StopAtBatch(Silence):
    """A listener that stops the run after some batches."""

    def __init__(self, num_batches: int) -> None:
        self.num_left = num_batches

    def batch(self) -> None:
        """Count down."""
        self.num_left -= 1
        if self.num_left == 0:
            raise Stop


def outcome(folder: Path) -> dict[str, Any]:
    """Return the names of all files, the bytes of all tensors, and all that JSON holds but what tells the time."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    position = json.loads((folder / "checkpoint" / "position.json").read_text())
    # The record tells the time, and the preset how its settings were written.
    told = ("record_bytes", "record_digest", "task_bytes", "task_digest", "digest")
    position = {key: value for key, value in position.items() if key not in told}
    position["files"] = {name: digest for name, digest in position["files"].items() if name.endswith(".safetensors")}
    return {
        "names": [str(path.relative_to(folder)) for path in files],
        "tensors": {
            str(path.relative_to(folder)): path.read_bytes() for path in files if path.suffix == ".safetensors"
        },
        "model": json.loads((folder / "model" / "model.json").read_text()),
        "events": events(folder),
        "position": position,
    }


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run without times, durations and memory."""
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("time", "seconds", "memory")} for line in lines]
