"""Sums of features, per class or around class means, and what is made of them: Gaussians, the linear discriminant.

Shapes: B samples, K classes, D features.
"""

import math

import torch
from torch import Tensor

FLOOR = 1e-6
"""Least variance in any direction, in units of the mean square of the class means."""


SHARE_ROOT = 200.0
"""Root of the samples of a class at which its own covariance would weigh as much as that of all classes."""


def class_sums(
    features_BD: Tensor, labels_B: Tensor, weights_B: Tensor, num_classes: int, outer: bool
) -> dict[str, Tensor]:
    """Return count, sum and, when asked, sum of outer products per class, in double precision."""
    features = features_BD.double()
    members_KB = torch.nn.functional.one_hot(labels_B, num_classes).T * weights_B.double()
    sums = {"count": members_KB.sum(1), "sum": members_KB @ features}
    if outer:
        sums["outer"] = (members_KB[:, None, :] * features.T) @ features
    return sums


def class_means(sums: dict[str, Tensor]) -> Tensor:
    """Return the mean feature of each class, shape (K, D), and zeros for one without samples."""
    return sums["sum"] / sums["count"].clamp(min=1)[:, None]


def unbiased_covariances(sums: dict[str, Tensor]) -> Tensor:
    """Return the covariance of each class's features, shape (K, D, D); one image has none."""
    counts, means = sums["count"][:, None, None], class_means(sums)
    return (sums["outer"] - counts * means[:, :, None] * means[:, None, :]) / (counts - 1).clamp(min=1)


def gaussian_factors(sums: dict[str, Tensor], shrinkage: float) -> Tensor:
    """Return Cholesky factors (K, D, D) of the class covariances, shrunk towards a multiple of the identity."""
    means = class_means(sums)
    covariance = sums["outer"] / sums["count"][:, None, None] - means[:, :, None] * means[:, None, :]
    size = means.shape[1]
    variance = covariance.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-12)
    identity = torch.eye(size, dtype=covariance.dtype, device=covariance.device)
    shrunk = (1 - shrinkage) * covariance + shrinkage * variance[:, None, None] * identity
    # The covariance is a difference of products, so its rounding error grows with the mean, not with the variance.
    ridge = 1e-6 * variance + 1e-13 * means.square().sum(1)
    factors: Tensor = torch.linalg.cholesky(shrunk + ridge[:, None, None] * identity)
    return factors


def ridged_factors(sums: dict[str, Tensor], ridge: float, diagonal: bool = False) -> Tensor:
    """Return Cholesky factors (K, D, D) of the unbiased class covariances, or of their diagonals, plus a ridge."""
    covariance, means = unbiased_covariances(sums), class_means(sums)
    covariance = covariance.diagonal(dim1=1, dim2=2).diag_embed() if diagonal else covariance
    # What rounding takes from a covariance grows with the mean; where a ridge is smaller than that, it is no ridge.
    floor = (ridge + 1e-13 * means.square().sum(1))[:, None, None]
    identity = torch.eye(means.shape[1], dtype=covariance.dtype, device=covariance.device)
    factors: Tensor = torch.linalg.cholesky(covariance + floor * identity)
    return factors


def covariances(means_KD: Tensor, factors_KDD: Tensor, shrinkage: float) -> Tensor:
    """Return the class covariances of which `gaussian_factors` made these factors."""
    means, factors = means_KD.double(), factors_KDD.double()
    shrunk = factors @ factors.mT
    rounding = 1e-13 * means.square().sum(1)
    variance = (shrunk.diagonal(dim1=1, dim2=2).mean(1) - rounding) / (1 + 1e-6)
    identity = torch.eye(means.shape[1], dtype=torch.float64, device=means.device)
    if shrinkage == 1:
        return variance[:, None, None] * identity
    added = shrinkage * variance + 1e-6 * variance + rounding
    return (shrunk - added[:, None, None] * identity) / (1 - shrinkage)


def merged(counts_K: Tensor, means_KD: Tensor, covariances_KDD: Tensor, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return count, sum and sum of outer products of the pictures behind the Gaussians and of new ones together."""
    means = means_KD.double()
    outer = covariances_KDD + means[:, :, None] * means[:, None, :]
    old = {"count": counts_K, "sum": counts_K[:, None] * means, "outer": counts_K[:, None, None] * outer}
    return {name: old[name].to(sums[name]) + sums[name] for name in old}


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
    return sums["outer"] - class_means(sums).T @ sums["sum"]


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
    apart = class_means(sums) - means_KD.double()
    return within_scatter(sums) + apart.T @ (apart * old * new / (old + new).clamp(min=1))
