"""How sure an answer may be: the factor on logits under which the probabilities fit pictures that were held back."""

import math
from typing import Any

import torch
from torch import Tensor

from clare.methods.base import Method

SMALLEST, LARGEST = 1e-4, 1e4
"""Between these the factor is sought, in units that make the logits of one picture differ by about one."""
NUM_HALVINGS = 60
NUM_BINS = 10


def fit_scale(logits_NK: Tensor, labels_N: Tensor) -> float:
    """Return the factor whose softmax of the logits gives the labels the highest likelihood.

    A label is taken to be wrong once in N + 2 pictures (Platt's targets): that all of a few pictures were named
    rightly does not make a model certain.
    """
    logits = logits_NK.double()
    num_pictures, num_classes = logits.shape
    unit = float(logits.std(dim=1).mean())
    if unit == 0:
        return 1.0
    logits = (logits - logits.mean(1, keepdim=True)) / unit
    wrong = 1 / (num_pictures + 2)
    own = logits.gather(1, labels_N[:, None]).squeeze(1)
    others = (logits.sum(1) - own) / (num_classes - 1)
    target = ((1 - wrong) * own + wrong * others).mean()
    low, high = SMALLEST, LARGEST
    for _ in range(NUM_HALVINGS):
        middle = math.sqrt(low * high)
        # The likelihood is concave in the factor: it falls from where the expected logit exceeds the target.
        expected = ((middle * logits).softmax(1) * logits).sum(1).mean()
        low, high = (low, middle) if expected > target else (middle, high)
    return math.sqrt(low * high) / unit


def fitted_scale(calibration: dict[str, Any] | None, method: Method) -> float:
    """Return the factor that was fitted when the model changed last, or the head's own."""
    return float((calibration or {}).get("scale", method.head.scale))


def calibration_error(certainty_N: Tensor, is_right_N: Tensor) -> float:
    """Return how far mean probability and share of right answers lie apart in ten bins, weighted by their sizes."""
    bins = (certainty_N * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    apart = torch.zeros(NUM_BINS, dtype=torch.float64).index_add(0, bins, certainty_N.double() - is_right_N.double())
    return float(apart.abs().sum() / len(certainty_N))
