"""Hard-concrete gates after Louizos, Welling and Kingma (2018): one for each coordinate, often exactly open or shut."""

import math
from typing import Any

import torch
from torch import Tensor, nn

SHARPNESS, LOW, HIGH = 2 / 3, -0.1, 1.1
"""How close draws are to open or shut, and the interval that they are stretched to before they are cut to [0, 1]."""
START = 2.0
"""Log alpha of a gate that has not been trained: nearly always open."""
REACH = 100.0
"""What one unit of a gate's trained number adds to its log alpha: its gradient is that of its coordinate times how far
this moved, thousandths, and one learning rate must do for both."""


def sampled_gates(log_alpha: Tensor) -> Tensor:
    """Draw gates between 0 and 1, through which a gradient passes."""
    uniform = torch.rand_like(log_alpha).clamp(1e-6, 1 - 1e-6)
    drawn = torch.sigmoid((uniform.log() - (-uniform).log1p() + log_alpha) / SHARPNESS)
    return (drawn * (HIGH - LOW) + LOW).clamp(0, 1)


def settled_gates(log_alpha: Tensor) -> Tensor:
    """Return the gates without chance."""
    return (torch.sigmoid(log_alpha) * (HIGH - LOW) + LOW).clamp(0, 1)


def log_alphas(trained: Tensor) -> Tensor:
    """Return the log alpha of gates from their trained numbers."""
    return START + REACH * trained


def open_chance(log_alpha: Tensor) -> Tensor:
    """Return how likely each gate is not shut, whose sum is the L0 penalty."""
    return torch.sigmoid(log_alpha - SHARPNESS * math.log(-LOW / HIGH))


class Gates(nn.Module):
    """Gates on how far coordinates moved from their origin, in a place that is filled from task to task."""

    origin: Tensor
    mask: Tensor

    def __init__(self, num_coordinates: int) -> None:
        super().__init__()
        self.trained = nn.Parameter(torch.zeros(num_coordinates), requires_grad=False)
        self.register_buffer("origin", torch.zeros(num_coordinates))
        self.register_buffer("mask", torch.zeros(num_coordinates, dtype=torch.bool))

    def _save_to_state_dict(self, *_: Any) -> None:
        """Save nothing: Stage 1 begins with fresh gates."""

    def begin(self, origin: Tensor, mask: Tensor) -> None:
        """Open the gates of a task."""
        if len(mask) != len(self.mask):
            self.origin, self.mask, self.trained.data = origin.clone(), mask.clone(), torch.zeros_like(origin)
        self.origin.copy_(origin)
        self.mask.copy_(mask)
        self.trained.data.zero_()

    def sampled(self, values: Tensor) -> Tensor:
        """Return values of which each keeps what its gate lets through of its movement."""
        gated = self.origin + sampled_gates(log_alphas(self.trained)) * (values - self.origin)
        return torch.where(self.mask, gated, values)

    def settled(self, values: Tensor) -> Tensor:
        """Return values behind gates without chance."""
        gated = self.origin + settled_gates(log_alphas(self.trained)) * (values - self.origin)
        return torch.where(self.mask, gated, values)
