"""How strongly to shrink a covariance, judged by samples as the discriminant would name them had it not seen them.

Leaving one sample out changes the mean of its class and the covariance by a product of one vector with itself, so that
all can be left out in turn without solving anything again. Shapes: N samples, K classes, D features.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clare.heads.precision import Precision

STRENGTHS = tuple(2.0**power for power in range(-6, 3))
"""Weights of the identity that are judged, as if so many samples to a feature had shown it."""
USUAL_STRENGTH = 0.5
"""The strength as long as nothing was judged."""
TEMPERATURES = tuple(2.0 ** (-power / 4) for power in range(28))
"""Factors on log posteriors: with few samples these are too sure, which is no reason to shrink."""
NUM_JUDGED = 512
"""Samples of a lesson that are judged at the most, evenly spread."""


def left_out_squares(
    samples_ND: Tensor, labels_N: Tensor, means_KD: Tensor, counts_K: Tensor, precision: Precision, weight: float
) -> Tensor:
    """Return squared distances (N, K) to the means, for each sample as if it had not been counted.

    The precision is that of `weight` times the sum of outer products around the means, and something constant.
    """
    places, counts = torch.arange(len(labels_N), device=labels_N.device), counts_K.double()[labels_N]
    solved = precision.solve(torch.cat([samples_ND, means_KD]).T)
    own, others = solved[:, : len(samples_ND)], solved[:, len(samples_ND) :]
    within, between = samples_ND @ others, means_KD @ others
    lengths = (samples_ND * own.T).sum(1)
    squares = lengths[:, None] - 2 * within + between.diagonal()
    to_own = squares[places, labels_N]
    # Each sample's way from its mean, times its way from every mean.
    products = lengths[:, None] - within - within[places, labels_N][:, None] + between[labels_N]
    change = weight * counts / (counts - 1).clamp(min=1)
    change = change / (1 - change * to_own).clamp(min=1e-9)
    squares = squares + change[:, None] * products.square()
    squares[places, labels_N] = (counts / (counts - 1).clamp(min=1)).square() * (to_own + change * to_own.square())
    return squares


def judged(
    samples_ND: Tensor,
    labels_N: Tensor,
    means_KD: Tensor,
    counts_K: Tensor,
    precision_of: Callable[[float], Precision],
) -> Tensor:
    """Return the log likelihood of left-out samples under each strength and temperature, summed over the samples.

    `precision_of` makes the precision of a strength; the samples are among those that means and counts were made of.
    """
    chosen = torch.arange(len(labels_N), device=labels_N.device)[counts_K[labels_N] > 1]
    chosen = chosen[:: max(1, -(-len(chosen) // NUM_JUDGED))]
    centre = means_KD.double().mean(0)
    samples, means, labels = samples_ND[chosen].double() - centre, means_KD.double() - centre, labels_N[chosen]
    total, found = float(counts_K.sum()), []
    for strength in STRENGTHS:
        weight = 1 / (total + strength * means.shape[1])
        squares = left_out_squares(samples, labels, means, counts_K, precision_of(strength), weight)
        posteriors = [(-0.5 * temperature * squares).log_softmax(1) for temperature in TEMPERATURES]
        found.append(torch.stack([each.gather(1, labels[:, None]).sum() for each in posteriors]))
    return torch.stack(found)


def best_strength(likelihoods: Tensor) -> float:
    """Return the strength under which left-out samples were the most likely; the usual one where none were judged."""
    if not bool(likelihoods.any()):
        return USUAL_STRENGTH
    return STRENGTHS[int(likelihoods.amax(1).argmax())]
