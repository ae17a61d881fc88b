"""Ridge regression from random features to classes, out of sums that grow with every task.

Shapes: N images, D features, M random features, C classes of a task, K classes so far.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clare.errors import ModelError

CANDIDATES = tuple(10.0**power for power in range(-8, 9))
LARGEST_RIDGE = 1e16
FIT_SHARE = 0.8
NUM_ROWS = 4096
"""Images whose random features are in memory at a time."""


def projected(features_ND: Tensor, projection_DM: Tensor) -> Tensor:
    """Return relu(features @ projection) in the projection's type, whatever autocast says, shape (N, M)."""
    with torch.autocast(features_ND.device.type, enabled=False):
        return (features_ND.to(projection_DM.dtype) @ projection_DM).relu()


def one_hot(labels: Tensor, num_classes: int, like: Tensor) -> Tensor:
    """Return a one in the place of each label, zeros elsewhere, shape (N, C)."""
    return F.one_hot(labels, num_classes).to(like)


def add_sums(gram_MM: Tensor, sums_CM: Tensor, features: Tensor, labels: Tensor, projection: Tensor) -> None:
    """Add H^T H and Y^T H of some images to the sums, a chunk of images at a time."""
    for part, part_labels in zip(torch.split(features, NUM_ROWS), torch.split(labels, NUM_ROWS), strict=True):
        hidden = projected(part, projection)
        gram_MM.addmm_(hidden.T, hidden)
        sums_CM.addmm_(one_hot(part_labels, len(sums_CM), hidden).T, hidden)


def ridge_errors(features: Tensor, labels: Tensor, num_classes: int, projection: Tensor) -> Tensor:
    """Return each candidate's mean squared error on the last fifth of the images, fitted to those before them."""
    num_fit, size = int(FIT_SHARE * len(features)), projection.shape[1]
    fit, judged = features[:num_fit], projected(features[num_fit:], projection)
    targets = one_hot(labels, num_classes, judged)
    if num_fit <= size:
        # The same predictions from products of images: a smaller system, and no zero eigenvalues to be rounded.
        hidden = projected(fit, projection)
        system, right, reader = hidden @ hidden.T, targets[:num_fit], judged @ hidden.T
    else:
        system, sums = judged.new_zeros(size, size), judged.new_zeros(num_classes, size)
        add_sums(system, sums, fit, labels[:num_fit], projection)
        right, reader = sums.T, judged
    errors = []
    for ridge in CANDIDATES:
        factor, failed = _factor(system, ridge)
        error = (reader @ torch.cholesky_solve(right, factor) - targets[num_fit:]).square().mean()
        errors.append(torch.where(failed == 0, error, torch.inf))
    return torch.stack(errors).nan_to_num(torch.inf, torch.inf)


def best_ridge(errors: Tensor) -> float:
    """Return the first candidate with the smallest error."""
    values: list[float] = errors.tolist()
    return CANDIDATES[values.index(min(values))]


def solve_ridge(gram_MM: Tensor, sums_KM: Tensor, ridge: float) -> tuple[Tensor, float]:
    """Return rows (K, M) with rows @ (gram + ridge I) = sums, and the ridge: ten times as large until that works."""
    while ridge <= LARGEST_RIDGE:
        factor, failed = _factor(gram_MM, ridge)
        if not bool(failed):
            return torch.cholesky_solve(sums_KM.T, factor).T.contiguous(), ridge
        ridge *= 10
    raise ModelError("the random features have no usable sums; look for features that are not finite numbers")


def _factor(system: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of system + ridge I, and a number that is not zero when there is none."""
    shifted = system.clone()
    shifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    return factor, failed


def pack_symmetric(matrix: Tensor) -> Tensor:
    """Return the lower triangle of a symmetric matrix as a rectangle: row i follows row M - 1 - i."""
    if len(matrix) % 2:
        matrix = F.pad(matrix, (0, 1, 0, 1))
    size = len(matrix)
    long, short = F.pad(matrix[size // 2 :].flip(0), (0, 1)), F.pad(matrix[: size // 2].flip(1), (1, 0))
    return torch.where(_is_long(size, matrix.device), long, short)


def unpack_symmetric(packed: Tensor, size: int) -> Tensor:
    """Undo `pack_symmetric`."""
    even = 2 * len(packed)
    is_long = _is_long(even, packed.device)
    long, short = torch.where(is_long, packed, 0)[:, :-1].flip(0), torch.where(is_long, 0, packed)[:, 1:].flip(1)
    lower = torch.cat([short, long])[:size, :size]
    return lower + lower.tril(-1).T


def _is_long(size: int, device: torch.device) -> Tensor:
    """Mark the places of a packed matrix of even size that hold the longer row of a pair."""
    columns, rows = torch.arange(size + 1, device=device), torch.arange(size // 2, device=device)
    return columns < size - rows[:, None]
