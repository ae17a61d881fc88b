"""DualGPM: which input directions earlier tasks used, kept as these or as what they left free, whichever is less.

Liang, Li: "Adaptive Plasticity Improvement for Continual Learning" (CVPR 2023); shares are of squared singular values
of the inputs' second moment. Shapes: D width, C columns of a basis.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Basis:
    """Orthonormal columns that span what earlier tasks used, or, as a complement, what they left free."""

    columns: Tensor
    """(D, C)"""
    is_complement: bool

    def free_part(self, matrix: Tensor) -> Tensor:
        """Return the part of a (D, n) matrix's columns that lies outside what earlier tasks used."""
        inside = self.columns @ (self.columns.T @ matrix)
        return inside if self.is_complement else matrix - inside


def first_basis(moment: Tensor, threshold: float) -> Basis:
    """Return the leading directions that stay below the threshold, at least one, or the complement of many."""
    width = len(moment)
    left, squares = _directions(moment)
    num_used = int((squares.cumsum(0) / squares.sum() < threshold).sum())
    if num_used < width / 2:
        return Basis(left[:, : max(num_used, 1)], False)
    return Basis(left[:, num_used:], True)


def next_basis(basis: Basis, moment: Tensor, threshold: float) -> Basis:
    """Return the basis after another task: used directions are added, or dropped from the complement."""
    grown = _shrunk(basis, moment, threshold) if basis.is_complement else _grown(basis, moment, threshold)
    width, num_columns = grown.columns.shape
    if grown.is_complement or num_columns <= width / 2:
        return grown
    left = torch.linalg.svd(grown.columns, full_matrices=True)[0]
    return Basis(left[:, num_columns:], True)


def _grown(basis: Basis, moment: Tensor, threshold: float) -> Basis:
    """Add leading directions outside the basis until the basis holds the threshold's share."""
    total = moment.square().sum()
    left, squares = _directions(basis.free_part(moment))
    held = (total - squares.sum() + _sum_before(squares)) / total
    num_taken = int((held < threshold).sum())
    num_room = len(moment) - basis.columns.shape[1]
    return Basis(torch.cat([basis.columns, left[:, : min(num_taken, num_room)]], dim=1), False)


def _shrunk(basis: Basis, moment: Tensor, threshold: float) -> Basis:
    """Drop leading directions inside the complement until it holds less than the rest of the share."""
    total = moment.square().sum()
    left, squares = _directions(basis.free_part(moment))
    held = (squares.sum() - _sum_before(squares)) / total
    num_columns = basis.columns.shape[1]
    num_dropped = min(int((held >= 1 - threshold).sum()), num_columns)
    if num_dropped == 0:
        return basis
    dropped = left[:, :num_dropped]
    rest = basis.columns - dropped @ (dropped.T @ basis.columns)
    return Basis(torch.linalg.svd(rest, full_matrices=False)[0][:, : num_columns - num_dropped], True)


def _directions(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the left singular vectors of a matrix and the squares of its singular values."""
    left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
    return left, values.square()


def _sum_before(values: Tensor) -> Tensor:
    """Return for each value the sum of those before it."""
    return values.cumsum(0) - values


class InputMemory(nn.Module):
    """The bases of all blocks; at most half as many columns as the width are kept of each."""

    columns: Tensor

    def __init__(self, num_blocks: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.sizes = [0] * num_blocks
        self.are_complements = [False] * num_blocks
        self.register_buffer("columns", torch.zeros(width, 0))

    def bases(self) -> list[Basis]:
        """Return each block's basis in double precision."""
        parts = torch.split(self.columns.double(), self.sizes, dim=1)
        return [Basis(part, flag) for part, flag in zip(parts, self.are_complements, strict=True)]

    def after(self, moments: Tensor, threshold: float, is_first: bool) -> dict[str, Tensor]:
        """Return the memory after another task as tensors whose shapes depend on nothing, for `load`."""
        columns = moments.new_zeros(len(moments), self.width, self.width // 2)
        sizes, flags = [], []
        for index, (basis, moment) in enumerate(zip(self.bases(), moments, strict=True)):
            new = first_basis(moment, threshold) if is_first else next_basis(basis, moment, threshold)
            size = new.columns.shape[1]
            columns[index, :, :size] = new.columns
            sizes.append(size)
            flags.append(new.is_complement)
        device = moments.device
        return {
            "columns": columns,
            "sizes": torch.tensor(sizes, device=device),
            "are_complements": torch.tensor(flags, dtype=torch.int64, device=device),
        }

    def load(self, solved: dict[str, Tensor]) -> None:
        """Take over what `after` returned."""
        self.resize(solved["sizes"].tolist(), solved["are_complements"].tolist())
        parts = [part[:, :size] for part, size in zip(solved["columns"], self.sizes, strict=True)]
        self.columns.copy_(torch.cat(parts, dim=1))

    def resize(self, sizes: list[int], are_complements: list[bool]) -> None:
        """Make room for bases of these sizes."""
        self.sizes = [int(size) for size in sizes]
        self.are_complements = [bool(flag) for flag in are_complements]
        self.columns = self.columns.new_zeros(self.width, sum(self.sizes))

    def structure(self) -> dict[str, Any]:
        """Return what must be known to make room for the columns."""
        return {"sizes": list(self.sizes), "are_complements": list(self.are_complements)}
