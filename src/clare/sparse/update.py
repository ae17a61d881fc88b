"""Masked updates of a tensor: what lies outside the mask keeps every bit."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from clare.sparse.gates import REACH, log_alphas, open_chance

PenaltyForm = Literal["l1-proximal", "l1-subgradient", "l2", "transformed-l1", "group-lasso", "l0"]
PROXIMAL = ("l1-proximal", "group-lasso")
"""Forms that act after a step, and so can leave a coordinate exactly where it was."""
MergeForm = Literal["state", "literal"]


def soft_threshold(values: Tensor, threshold: Tensor | float) -> Tensor:
    """Move every value towards zero by the threshold and stop at zero."""
    return torch.sign(values) * (values.abs() - threshold).clamp(min=0)


def penalty_gradient(offset: Tensor, weight: float, form: PenaltyForm, turn: float = 1.0) -> Tensor:
    """Return the gradient of a penalty; the proximal forms have none, `l0` is that of gates."""
    if form == "l1-subgradient":
        return weight * offset.sign()
    if form == "l2":
        return 2 * weight * offset
    if form == "transformed-l1":
        return weight * (turn + 1) * turn * offset.sign() / (turn + offset.abs()).square()
    if form == "l0":
        chance = open_chance(log_alphas(offset))
        return weight * REACH * chance * (1 - chance)
    return torch.zeros_like(offset)


def held(moved: Tensor, anchor: Tensor, threshold: Tensor | float) -> Tensor:
    """Return moved values pulled back to their anchor, which what moved less than the threshold is to the bit."""
    offset = soft_threshold(moved - anchor, threshold)
    return torch.where(offset == 0, anchor, anchor + offset)


def held_in_groups(
    moved: Tensor, anchor: Tensor, mask: Tensor, threshold: Tensor | float, norms: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return moved values whose groups are each pulled back as one; `norms` says of each coordinate its group's."""
    offset = torch.where(mask, moved - anchor, 0.0)
    sizes = norms(offset).clamp(min=torch.finfo(offset.dtype).tiny)
    offset = offset * (1 - threshold / sizes).clamp(min=0)
    return torch.where(offset == 0, anchor, anchor + offset)


def write_masked(target: Tensor, values: Tensor, mask: Tensor | None) -> None:
    """Overwrite the target where the mask is true; `where` keeps a NaN elsewhere from leaking in."""
    target.copy_(values if mask is None else torch.where(mask, values, target))


def merged(shared: Tensor, trained: Tensor, chosen: Tensor, initial: Tensor, form: MergeForm) -> Tensor:
    """Return the shared values after a task: what it trained where it chose, or its delta added, as printed."""
    if form == "state":
        return torch.where(chosen, trained, shared)
    return shared + torch.where(chosen, trained - initial, 0.0)
