"""Batches as lists of positions: full shapes, seeded order, padding with weight zero."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """One rank's part of a batch."""

    positions: Tensor
    """Positions in the data, shape (B,); padding repeats the first position."""
    weights: Tensor
    """One for a sample, zero for padding, shape (B,), where the positions are."""
    num_samples: int
    """Samples in the whole batch, over all ranks."""


def batches(order: Tensor, batch_size: int, rank: int, world_size: int) -> Iterator[Batch]:
    """Cut an order into batches that all have the same shape on every rank."""
    share = -(-batch_size // world_size)
    full = torch.ones(share, device=order.device)
    for start in range(0, len(order), batch_size):
        whole = order[start : start + batch_size]
        own = whole[rank::world_size]
        if len(own) == share:
            yield Batch(own, full, len(whole))
        else:
            padding = order[:1].expand(share - len(own))
            weights = full.clone()
            weights[len(own) :] = 0
            yield Batch(torch.cat([own, padding]), weights, len(whole))
