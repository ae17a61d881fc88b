"""What a run adds to from task to task: files that grow at their end, and what goes behind the rows of before.

A tensor whose first rows are those it had a task ago is written as the rows that came; any other one is written anew.
One that once changed otherwise is written anew for good, so that nothing is kept twice more than once.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clare.errors import RunError
from clare.files import RESTORE, parse_tensors
from clare.model.tensors import begins_with

Tensors = Mapping[str, Tensor]


class Appended:
    """A file of a run to which bytes are added; those that no position counts are cut off again."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.path = folder, folder / name
        self.num_bytes = 0
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Return the digest of all bytes."""
        return self._digest.hexdigest()

    def cut(self, counting: bytes) -> None:
        """Forget what stands behind the bytes that count, which are these."""
        try:
            with self.path.open("ab") as file:
                file.truncate(len(counting))
        except OSError as error:
            raise RunError(f"could not write {self.folder}: {error.strerror}; choose another --out") from error
        self._digest, self.num_bytes = hashlib.sha256(counting), len(counting)

    def append(self, data: bytes) -> None:
        """Add bytes, which are on the disk when this returns."""
        try:
            with self.path.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"could not write {self.folder}: {error.strerror}; free some space and run again") from error
        self._digest.update(data)
        self.num_bytes += len(data)


class GrowingRows:
    """How many rows of which tensors are in a file, and which tensors it has that count no longer."""

    def __init__(self) -> None:
        self.lengths: dict[str, int] = {}
        self.outdated: set[str] = set()

    def split(self, before: Tensors, after: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the rows to be added to those of before, and the tensors to be written anew."""
        kept = {
            name: tensor
            for name, tensor in after.items()
            if name not in self.outdated and name in before and begins_with(tensor, before[name])
        }
        self.outdated |= self.lengths.keys() - kept.keys()
        rows = {
            name: tensor[self.lengths.get(name, 0) :]
            for name, tensor in kept.items()
            if len(tensor) > self.lengths.get(name, -1)
        }
        self.lengths = {name: len(tensor) for name, tensor in kept.items()}
        return rows, {name: tensor for name, tensor in after.items() if name not in kept}

    def read(self, path: Path, data: bytes, sizes: list[int], outdated: list[str]) -> dict[str, Tensor]:
        """Return the tensors of a file that has grown by parts of these sizes, without those that are outdated."""
        parts: dict[str, list[Tensor]] = {}
        start = 0
        for size in filter(None, sizes):
            for name, rows in parse_tensors(path, data[start : start + size], RunError, RESTORE).items():
                parts.setdefault(name, []).append(rows)
            start += size
        self.outdated = set(outdated)
        tensors = {name: torch.cat(rows) for name, rows in parts.items() if name not in self.outdated}
        self.lengths = {name: len(tensor) for name, tensor in tensors.items()}
        return tensors


def split_lists(before: Mapping[str, list[Any]], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what lists have beyond those of before, and the values that do not go on from there."""
    more, others = {}, {}
    for key, value in after.items():
        known = before.get(key, [])
        if isinstance(value, list) and value[: len(known)] == known:
            more[key] = value[len(known) :]
        else:
            others[key] = value
    return more, others
