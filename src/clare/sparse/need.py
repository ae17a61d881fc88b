"""How much of its budget a task needs, told from losses and a gradient."""

from collections.abc import Sequence

from torch import Tensor

PARTS = (0.125, 0.25, 0.5, 1.0)
"""Parts of a budget that are tried, the smallest first."""
ENOUGH = 0.9
"""What a part must reach of the fall in the loss that the whole budget brings."""


def needed_part(losses: Sequence[float]) -> float:
    """Return the smallest part that does nearly what all do, from the loss without and with each of the parts."""
    before, fall = losses[0], losses[0] - losses[-1]
    if fall <= 0:
        return PARTS[0]
    return next(part for part, loss in zip(PARTS, losses[1:], strict=True) if before - loss >= ENOUGH * fall)


def likeness(gradient: Tensor, is_claimed: Tensor) -> float:
    """Return how much more of a squared gradient lies on claimed coordinates than chance puts there, from 0 to 1."""
    squares, by_chance = gradient.double().square(), float(is_claimed.double().mean())
    total = float(squares.sum())
    if total == 0 or by_chance == 1:
        return 0.0
    return max(0.0, (float(squares[is_claimed].sum()) / total - by_chance) / (1 - by_chance))
