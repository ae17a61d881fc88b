"""Sums around class means, and the linear discriminant of classes that share one covariance.

Shapes: B samples, K classes, D features.
"""

import math

import torch
from torch import Tensor

from clare.heads.statistics import class_sums

FLOOR = 1e-6
"""Least variance in any direction, in units of the mean square of the class means."""


SHARE_ROOT = 200.0
"""Root of the samples of a class at which its own covariance would weigh as much as that of all classes."""


def shrinkage_for(num_features: int, num_samples: float) -> float:
    """Return a weight of the identity that falls from one as samples come to outnumber features."""
    return num_features / (num_features + 2 * num_samples)


def own_share_for(samples_per_class: float) -> float:
    """Return a weight of a class's own covariance that grows with the samples it was made from."""
    root = math.sqrt(samples_per_class)
    return root / (root + SHARE_ROOT)


def scatter_sums(features_BD: Tensor, labels_B: Tensor, weights_B: Tensor, num_classes: int) -> dict[str, Tensor]:
    """Return count and sum per class, and one sum of outer products over all classes, in double precision."""
    features = features_BD.double()
    sums = class_sums(features, labels_B, weights_B, num_classes, outer=False)
    return {**sums, "outer": (features.T * weights_B.double()) @ features}


def within_scatter(sums: dict[str, Tensor]) -> Tensor:
    """Return the sum of outer products around the class means, shape (D, D)."""
    return sums["outer"] - sample_means(sums).T @ sums["sum"]


def sample_means(sums: dict[str, Tensor]) -> Tensor:
    """Return the mean of each class, and zeros for one without samples."""
    return sums["sum"] / sums["count"].clamp(min=1)[:, None]


def shrunk_covariance(means_KD: Tensor, scatter_DD: Tensor, num_samples: float, shrinkage: float) -> Tensor:
    """Return the scatter over the samples, shrunk towards a multiple of the identity, in double precision."""
    covariance = scatter_DD.double() / max(num_samples, 1.0)
    variance = covariance.diagonal().mean()
    identity = torch.eye(len(covariance), dtype=torch.float64, device=covariance.device)
    floor = (FLOOR * means_KD.double().square().mean()).clamp(min=torch.finfo(torch.float64).tiny)
    return (1 - shrinkage) * covariance + (shrinkage * variance + floor) * identity


def discriminant_rows(means_KD: Tensor, scatter_DD: Tensor, num_samples: float, shrinkage: float) -> Tensor:
    """Return weights and a bias for each class, shape (K, D + 1), whose products are log posteriors but for a constant.

    The covariance is the scatter over the samples, shrunk towards a multiple of the identity.
    """
    means = means_KD.double()
    weights = torch.linalg.solve(shrunk_covariance(means_KD, scatter_DD, num_samples, shrinkage), means.T).T
    return torch.cat([weights, -0.5 * (weights * means).sum(1, keepdim=True)], 1)


def added_scatter(counts_K: Tensor, means_KD: Tensor, sums: dict[str, Tensor]) -> Tensor:
    """Return what the scatter grows by with more samples of classes that had so many before, around these means."""
    old, new = counts_K.double()[:, None], sums["count"][:, None]
    apart = sample_means(sums) - means_KD.double()
    return within_scatter(sums) + apart.T @ (apart * old * new / (old + new).clamp(min=1))
