"""Masked updates of a tensor: what lies outside the mask keeps every bit."""

from typing import Literal

import torch
from torch import Tensor

PenaltyForm = Literal["l1-proximal", "l1-subgradient", "l2"]
MergeForm = Literal["state", "literal"]


def soft_threshold(values: Tensor, threshold: Tensor | float) -> Tensor:
    """Move every value towards zero by the threshold and stop at zero."""
    return torch.sign(values) * (values.abs() - threshold).clamp(min=0)


def penalty_gradient(offset: Tensor, weight: float, form: PenaltyForm) -> Tensor:
    """Return the gradient of weight * |offset| or weight * offset^2; the proximal form has none."""
    if form == "l1-subgradient":
        return weight * offset.sign()
    if form == "l2":
        return 2 * weight * offset
    return torch.zeros_like(offset)


def held(moved: Tensor, anchor: Tensor, threshold: Tensor | float) -> Tensor:
    """Return moved values pulled back to their anchor, which what moved less than the threshold is to the bit."""
    offset = soft_threshold(moved - anchor, threshold)
    return torch.where(offset == 0, anchor, anchor + offset)


def write_masked(target: Tensor, values: Tensor, mask: Tensor | None) -> None:
    """Overwrite the target where the mask is true; `where` keeps a NaN elsewhere from leaking in."""
    target.copy_(values if mask is None else torch.where(mask, values, target))


def merged(shared: Tensor, trained: Tensor, chosen: Tensor, initial: Tensor, form: MergeForm) -> Tensor:
    """Return the shared values after a task: what it trained where it chose, or its delta added, as printed."""
    if form == "state":
        return torch.where(chosen, trained, shared)
    return shared + torch.where(chosen, trained - initial, 0.0)
