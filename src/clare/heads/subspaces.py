"""Prototypes of all classes in all subspaces; those of old classes in newer subspaces are synthesised.

Shapes: B samples, K classes in the order of their tasks, S subspaces of which task i brought the i-th, D features.
The classes of task i have exact prototypes in the subspaces 0 to i.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor


def task_of_classes(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return the task of every class, shape (K,), from the number of classes in each task."""
    # As a constant, of which an export knows the size.
    return torch.tensor([task for task, size in enumerate(sizes) for _ in range(size)], dtype=torch.long, device=device)


def class_similarity(own_CD: Tensor, others_KD: Tensor, allowed_JK: Tensor) -> Tensor:
    """Return the softmax of cosines between classes over the others allowed in each of J subspaces, shape (J, C, K)."""
    cosines_CK = F.normalize(own_CD, dim=1) @ F.normalize(others_KD, dim=1).T
    return cosines_CK.masked_fill(~allowed_JK[:, None], -torch.inf).softmax(2)


def synthesise(prototypes_KSD: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the prototypes, those of each class in the subspaces after its own made anew from later classes' ones.

    In subspace j they are averages over all classes of the tasks j and later, whose weights are the similarities to
    these classes in the class's own subspace.
    """
    result = prototypes_KSD.clone()
    device, num_tasks = result.device, len(sizes)
    starts, tasks = [0, *accumulate(sizes)], task_of_classes(sizes, device)
    for task in range(num_tasks - 1):
        start, end = starts[task], starts[task + 1]
        allowed_JK = tasks[end:] >= torch.arange(task + 1, num_tasks, device=device)[:, None]
        weights_JCK = class_similarity(prototypes_KSD[start:end, task], prototypes_KSD[end:, task], allowed_JK)
        exact_JKD = prototypes_KSD[end:, task + 1 :].transpose(0, 1)
        result[start:end, task + 1 :] = (weights_JCK @ exact_JKD).transpose(0, 1)
    return result


def subspace_weights(sizes: Sequence[int], cross_weight: float, device: torch.device) -> Tensor:
    """Return what each subspace counts for each class, shape (K, S): 1 for its own, all others share the weight."""
    own = (task_of_classes(sizes, device)[:, None] == torch.arange(len(sizes), device=device)).float()
    return own + (1 - own) * (cross_weight / max(len(sizes) - 1, 1))


def weighted_cosines(features_BSD: Tensor, prototypes_KSD: Tensor, weights_KS: Tensor) -> Tensor:
    """Return the weighted sums of the cosines in all subspaces, each normalised by itself, shape (B, K)."""
    rows_KSD = F.normalize(prototypes_KSD, dim=2) * weights_KS[:, :, None]
    return F.normalize(features_BSD, dim=2).flatten(1) @ rows_KSD.flatten(1).T


def whole_cosines(features_BSD: Tensor, prototypes_KSD: Tensor) -> Tensor:
    """Return one cosine over all subspaces side by side, shape (B, K)."""
    return F.normalize(features_BSD.flatten(1), dim=1) @ F.normalize(prototypes_KSD.flatten(1), dim=1).T
