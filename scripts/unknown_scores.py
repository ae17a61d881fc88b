"""Scores of showing none of the known classes, as the field has them: the larger, the less a picture looks known.

Shapes: B pictures, K classes, D features, N kept pictures, R directions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def max_logit(logits_BK: Tensor) -> Tensor:
    """Hendrycks and others (2022): the largest logit, its sign turned."""
    return -logits_BK.amax(1)


def max_softmax(logits_BK: Tensor, scale: float) -> Tensor:
    """Hendrycks and Gimpel (2017): the largest probability, its sign turned."""
    return -(scale * logits_BK).softmax(1).amax(1)


def energy(logits_BK: Tensor, scale: float) -> Tensor:
    """Liu and others (2020): the free energy of the logits."""
    return -torch.logsumexp(scale * logits_BK, 1) / scale


def mahalanobis(squares_BK: Tensor) -> Tensor:
    """Lee and others (2018): the squared distance to the nearest class in the metric of the common covariance."""
    return squares_BK.amin(1)


def relative_mahalanobis(squares_BK: Tensor, to_middle_B: Tensor, share: float = 1.0) -> Tensor:
    """Ren and others (2021): that distance less a share, in the paper one, of the distance to the middle of all."""
    return squares_BK.amin(1) - share * to_middle_B


def nearest_kept(features_BD: Tensor, kept_ND: Tensor, number: int) -> Tensor:
    """Sun and others (2022): the distance to so-and-so nearest kept picture, of features of length one."""
    return -(F.normalize(features_BD, dim=1) @ F.normalize(kept_ND, dim=1).T).topk(number, 1).values[:, -1]


def residual(features_BD: Tensor, directions_DR: Tensor) -> Tensor:
    """Return the squared length of what lies outside the span of orthonormal directions."""
    return features_BD.square().sum(1) - (features_BD @ directions_DR).square().sum(1)


def vim(features_BD: Tensor, logits_BK: Tensor, directions_DR: Tensor, ratio: float) -> Tensor:
    """Wang and others (2022): the residual as a logit of its own, `ratio` times its length, beside the energy."""
    return ratio * residual(features_BD, directions_DR).clamp(min=0).sqrt() + energy(logits_BK, 1.0)


def area_under_curve(known: Tensor, unknown: Tensor) -> float:
    """Return how often an unknown picture scores higher than a known one; ties count half."""
    order = known.sort().values
    below = torch.searchsorted(order, unknown).double() + torch.searchsorted(order, unknown, right=True)
    return float(below.mean() / 2 / len(known))


def false_alarms(known: Tensor, unknown: Tensor, noticed: float = 0.95) -> float:
    """Return the share of known pictures that are called unknown when this share of the unknown ones is."""
    threshold = unknown.sort(descending=True).values[max(0, round(noticed * len(unknown)) - 1)]
    return float((known >= threshold).double().mean())
