"""Per-class sums of features, and the Gaussians made from them.

Shapes: B samples, K classes, D features.
"""

import torch
from torch import Tensor


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
    """Return the mean feature of each class, shape (K, D)."""
    return sums["sum"] / sums["count"][:, None]


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
