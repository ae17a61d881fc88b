"""The score that a picture is none of the known classes.

It goes by how well a picture goes with any class, its familiarity. A held-back picture stands for a known one, and for
an unknown one by its familiarity with the other classes, as if its own had never been taught. How steeply the score
rises as pictures become less familiar is fitted to these pairs; where it reaches one half follows from the share of
known pictures that one accepts to lose.
"""

import math
from typing import Any

import torch
from torch import Tensor

from clare.errors import ModelError

DEFAULT_THRESHOLD = 0.5
UNKNOWN_RATE = 0.1
"""Share of known pictures that may lie at or above the threshold."""
LEAST_SLOPE = -1e-3
MIN_PAIRS = 4
NUM_STEPS = 50
RIDGE = 1e-3


def limit_at(known: Tensor, rate: float) -> float | None:
    """Return the familiarity up to which a picture is called unknown so that no more than this share of known ones is.

    The promise is that of split conformal prediction; with too few pictures for it there is no such limit.
    """
    place = math.floor(rate * (len(known) + 1) + 1e-9)
    return float(known.double().sort().values[place - 1]) if place else None


def calibrate(known: Tensor, left_out: Tensor) -> dict[str, Any] | None:
    """Fit the curve to pairs of familiarities; too few pairs, or only one class, give none."""
    if len(known) < MIN_PAIRS or not torch.isfinite(left_out).all():
        return None
    values = torch.cat([known, left_out]).double()
    centre, deviation = values.mean(), values.std().clamp(min=1e-9)
    targets = torch.cat([torch.zeros(len(known)), torch.ones(len(left_out))]).double()
    slope = _fit((values - centre) / deviation, targets) / float(deviation)
    limit = limit_at(known, UNKNOWN_RATE)
    curve = {"slope": slope, "offset": -slope * (float(known.min()) if limit is None else limit)}
    return {
        **curve,
        "threshold": DEFAULT_THRESHOLD,
        "num_pairs": len(known),
        "known_below": float((scores(curve, known) < DEFAULT_THRESHOLD).double().mean()),
        "left_out_above": float((scores(curve, left_out) >= DEFAULT_THRESHOLD).double().mean()),
    }


def scores(curve: dict[str, Any] | None, familiarity: Tensor) -> Tensor:
    """Return the score of pictures of such familiarity; without a curve nothing is called unknown."""
    if curve is None:
        return torch.zeros(len(familiarity), dtype=torch.float64)
    return torch.sigmoid(curve["slope"] * familiarity.double() + curve["offset"])


def threshold_at(curve: dict[str, Any] | None, known: Tensor, rate: float) -> float:
    """Return the threshold at which this share of known pictures is lost, as far as held-back ones tell."""
    limit = limit_at(known, rate)
    if curve is None or limit is None:
        needed = math.ceil(1 / rate - 1e-9) - 1
        raise ModelError(
            f"to lose {100 * rate:g} % of known pictures takes {max(needed, MIN_PAIRS)} held-back pictures of two "
            f"classes or more, and the model keeps {len(known)}; accept a larger share, or teach it more pictures"
        )
    return float(scores(curve, torch.tensor([limit])))


def threshold_of(curve: dict[str, Any] | None) -> float:
    """Return the score from which a picture is called unknown unless another is asked for."""
    return DEFAULT_THRESHOLD if curve is None else float(curve["threshold"])


def _fit(values: Tensor, targets: Tensor) -> float:
    """Return the slope, always below zero, of a logistic regression with a small ridge, by Newton's method."""
    design = torch.stack([values, torch.ones_like(values)], dim=1)
    weights = torch.zeros(2, dtype=torch.float64)
    ridge = RIDGE * len(values) * torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    for _ in range(NUM_STEPS):
        chance = torch.sigmoid(design @ weights)
        gradient = design.T @ (chance - targets) + ridge @ weights
        curvature = (design.T * (chance * (1 - chance)).clamp(min=1e-9)) @ design + ridge
        weights = weights - torch.linalg.solve(curvature, gradient)
    # Known pictures are the more familiar ones by construction; a rising curve could only be noise.
    return min(float(weights[0]), LEAST_SLOPE)
