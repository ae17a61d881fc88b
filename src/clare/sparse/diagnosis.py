"""How far coordinates moved and where they lie, in numbers that a record can hold."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clare.sparse.ledger import Ledger

SMALLEST = 1e-9
"""The lowest edge; smaller movements count in the first bin."""
NUM_BINS = 40
LARGE = 0.05
"""The update from which on the paper counts a weight as one of the few that changed much."""


def movement_histogram(movement: Tensor, threshold: float | None = None) -> dict[str, Any]:
    """Count movements |x| > 0 in bins of equal ratio from 1e-9 to the largest, beside those that are zero."""
    # A decade at least, so that the edges rise where hardly anything moved.
    largest = max(float(movement.max()) if movement.numel() else 0.0, 10 * SMALLEST)
    ratio = math.log(largest / SMALLEST)
    inner = [SMALLEST * math.exp(ratio * place / NUM_BINS) for place in range(1, NUM_BINS)]
    moved = movement[movement > 0].double()
    # A movement on an edge belongs to the bin above it; without the outer edges, no movement is outside.
    bins = torch.bucketize(moved, moved.new_tensor(inner), right=True, out_int32=True)
    return {
        "edges": [SMALLEST, *inner, largest],
        "counts": torch.bincount(bins, minlength=NUM_BINS).tolist(),
        "num_unmoved": movement.numel() - moved.numel(),
        "threshold": threshold,
    }


def smallest(scores: Tensor, chosen: Tensor) -> float | None:
    """Return the smallest score among the chosen, the threshold that they reached; none where none is chosen."""
    return float(scores[chosen].min()) if chosen.any() else None


def count_claim(ledger: Ledger, num_blocks: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Return which of the blocks the last claim lies in; nothing before the first."""
    if not ledger.lengths:
        return {}
    coordinates, _ = ledger.claim_of(-1)
    totals = [sum(sizes[block::num_blocks]) for block in range(num_blocks)]
    return {
        "claimed_per_block": count_per_block(coordinates, num_blocks, sizes),
        "coordinates_per_block": totals[0] if len(set(totals)) == 1 else totals,
    }


def count_per_block(coordinates: Tensor, num_blocks: int, sizes: Sequence[int]) -> list[int]:
    """Return how many of these coordinates lie in each block; sizes are those of all blocks, adapter by adapter."""
    ends = torch.tensor(sizes, device=coordinates.device).cumsum(0)
    pieces = torch.bucketize(coordinates, ends, right=True)
    counts: list[int] = torch.bincount(pieces % num_blocks, minlength=num_blocks).tolist()
    return counts
