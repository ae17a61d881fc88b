"""How long the free coordinates will last."""

import math

from clare.methods.base import Method
from clare.methods.protocols import ClaimsCoordinates

LEAST_SHARE = 0.1
"""A task counts as long as its budget is at least this share of what the first task got."""


def tasks_left(method: Method) -> int | None:
    """Return about how many more tasks the free coordinates suffice for; none where they never run out."""
    if not isinstance(method, ClaimsCoordinates) or method.share_left_free is None:
        return None
    return num_tasks(method.ledger.num_free / method.ledger.num_coordinates, method.share_left_free)


def num_tasks(free_share: float, sparsity: float) -> int:
    """Return how many tasks get at least a tenth of the first one's budget when each leaves this share free."""
    if free_share < LEAST_SHARE:
        return 0
    if sparsity == 0:
        return 1
    # Rounding must not lose the task whose budget is a tenth exactly.
    return 1 + math.floor(math.log(LEAST_SHARE / free_share) / math.log(sparsity) + 1e-9)
