"""Training the rows of all classes anew on features drawn from one Gaussian per class, as published methods do it.

Shapes: B samples, K classes so far, T tasks so far, D features.
"""

from typing import Literal

import torch
from torch import Tensor

from clare.heads.statistics import class_means, unbiased_covariances

Decay = Literal["none", "older", "newer"]
"""Which classes' means are drawn closer to zero: none, those of older tasks, or, as some code has it, of newer ones."""
LEAST = 0.9
"""Factor on the mean of a class that is as old, or as new, as can be."""


def margin_logits(logits_BK: Tensor, labels_B: Tensor, margin: float | Tensor) -> Tensor:
    """Return logits of which the true one is lower by a margin: CosFace, where they are scaled cosines."""
    # Where a step is recorded, `one_hot` would look at the labels on the host.
    is_true_BK = labels_B[:, None] == torch.arange(logits_BK.shape[1], device=labels_B.device)
    return logits_BK - margin * is_true_BK.to(logits_BK)


def ridged_factors(sums: dict[str, Tensor], ridge: float, diagonal: bool = False) -> Tensor:
    """Return Cholesky factors (K, D, D) of the unbiased class covariances, or of their diagonals, plus a ridge."""
    covariance, means = unbiased_covariances(sums), class_means(sums)
    covariance = covariance.diagonal(dim1=1, dim2=2).diag_embed() if diagonal else covariance
    # What rounding takes from a covariance grows with the mean; where a ridge is smaller than that, it is no ridge.
    floor = (ridge + 1e-13 * means.square().sum(1))[:, None, None]
    identity = torch.eye(means.shape[1], dtype=covariance.dtype, device=covariance.device)
    factors: Tensor = torch.linalg.cholesky(covariance + floor * identity)
    return factors


def mean_factors(tasks_K: Tensor, decay: Decay) -> Tensor:
    """Return the factor on the mean of each class, whose task is counted from 0, while the last task is learnt."""
    if decay == "none":
        return torch.ones(len(tasks_K), device=tasks_K.device)
    num_tasks = int(tasks_K.max()) + 1
    if decay == "older":
        return LEAST + (1 - LEAST) * (tasks_K + 1) / num_tasks
    # The code divides a class's number by the task's size with its sign turned, and rounds down.
    size = int((tasks_K == tasks_K.max()).sum())
    place = torch.arange(len(tasks_K), device=tasks_K.device)
    return LEAST + (1 - LEAST) * (1 - torch.ceil(place / size)) / num_tasks


def task_norms(logits_BK: Tensor, tasks_K: Tensor) -> Tensor:
    """Return the mean over tasks of the norm of each task's logits, shape (B, 1)."""
    num_tasks = int(tasks_K.max()) + 1
    members = torch.nn.functional.one_hot(tasks_K, num_tasks).to(logits_BK)
    squares: Tensor = (logits_BK.square() @ members).clamp(min=1e-20)
    return squares.sqrt().mean(1, keepdim=True) + 1e-7


def decoupled(logits_BK: Tensor, tasks_K: Tensor, temperature: float) -> Tensor:
    """Return logits divided by the mean norm of a task's logits and by a temperature."""
    return logits_BK / task_norms(logits_BK, tasks_K) / temperature
