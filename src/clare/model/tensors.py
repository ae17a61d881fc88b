"""Files of a model's tensors: a large state is written as what it has beyond the one before it, on which it then rests.

In a file that rests on another, a name that begins with a plus sign holds rows to be put behind those of before; any
other name holds a tensor in full, and what is not named is as it was. Each file is named by what it holds.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from clare.errors import ModelError
from clare.files import parse_tensors, write_bytes
from clare.model.checks import RESTORE
from clare.sealed import digest_of, read_bytes

TENSORS = "tensors-*.safetensors"
BASE, MORE = "base", "+"
LEAST_SAVED = 2**20
"""Bytes that resting on another file must save."""
MOST_PARTS = 32
"""Files that a state may consist of."""


def write_state_tensors(folder: Path, tensors: dict[str, Tensor], base: str = "") -> str:
    """Write tensors, as what is beyond a file that is there if that saves much, and return the file's name."""
    whole = {name: tensor.to("cpu").contiguous() for name, tensor in tensors.items()}
    own, rests = whole, None
    if base and size_of(whole) > LEAST_SAVED and len(parts_of(folder, base)) < MOST_PARTS:
        found = beyond(read_tensors(folder / base), whole)
        # More than half of it new: then what is outdated in the files below would weigh too much.
        if found is not None and size_of(whole) > max(size_of(found) + LEAST_SAVED, 2 * size_of(found)):
            own, rests = found, {BASE: base}
    data = save(own, rests)
    name = f"tensors-{short_digest(data)}.safetensors"
    write_bytes(folder / name, data)
    return name


def beyond(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """Return what makes the tensors of before to those of after, if nothing is to be dropped."""
    if before.keys() - after.keys():
        return None
    found = {}
    for name, tensor in after.items():
        old = before.get(name)
        if old is None or not begins_with(tensor, old):
            found[name] = tensor
        elif len(old) < len(tensor):
            found[MORE + name] = tensor[len(old) :].contiguous()
    return found


def begins_with(tensor: Tensor, rows: Tensor) -> bool:
    """Tell whether the first rows of a tensor are these, bit for bit."""
    is_alike = tensor.dim() > 0 and rows.dtype == tensor.dtype and rows.shape[1:] == tensor.shape[1:]
    if not is_alike or len(rows) > len(tensor):
        return False
    # As bytes: zeros of both signs are equal, and what is no number is not.
    old, new = (part.contiguous().flatten().view(torch.uint8) for part in (rows.to(tensor.device), tensor[: len(rows)]))
    return torch.equal(old, new)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a model and make sure that they are the ones that were saved."""
    tensors: dict[str, Tensor] = {}
    for name in reversed(parts_of(path.parent, path.name)):
        part = path.parent / name
        for key, tensor in parse_tensors(part, read_named("tensors", part), ModelError, RESTORE).items():
            own = key.removeprefix(MORE)
            if own == key:
                tensors[own] = tensor
            elif own in tensors and tensors[own].shape[1:] == tensor.shape[1:]:
                tensors[own] = torch.cat([tensors[own], tensor])
            else:
                raise ModelError(f"{part} adds to the tensors of an earlier file and does not fit them; {RESTORE}")
    return tensors


def parts_of(folder: Path, name: str) -> list[str]:
    """Return the files that a state consists of, from its own to the first; one that is damaged ends the row."""
    names = [name]
    while len(names) <= MOST_PARTS and (base := _base_of(folder / names[-1])):
        names.append(base)
    return names


def _base_of(path: Path) -> str:
    """Return the name of the file that a file rests on, if it does and says so in a way that can be read."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= path.stat().st_size else {}
        base = header.get("__metadata__", {}).get(BASE, "")
    except (AttributeError, OSError, ValueError):
        # What is wrong with the file is said by whoever reads it.
        return ""
    return base if isinstance(base, str) and Path(base).name == base else ""


def size_of(tensors: dict[str, Tensor]) -> int:
    """Return the bytes of some tensors."""
    return sum(tensor.nbytes for tensor in tensors.values())


def short_digest(data: bytes) -> str:
    """Return a short hash."""
    return digest_of(data)[:16]


def read_named(kind: str, path: Path) -> bytes:
    """Read a file whose name tells what it holds."""
    data = read_bytes(path, ModelError, RESTORE)
    if path.name != f"{kind}-{short_digest(data)}{path.suffix}":
        raise ModelError(f"{path} is damaged: its content does not fit its name; {RESTORE}")
    return data
