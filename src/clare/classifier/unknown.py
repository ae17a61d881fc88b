"""The score that a picture is none of the known classes.

A held-back picture stands for a known one by its largest logit, and for an unknown one by its largest logit among the
other classes, as if its own had never been taught. A logistic curve is fitted to these pairs, so the score is the
probability that a picture is unknown when known and unknown ones are equally frequent.
"""

from typing import Any

import torch
from torch import Tensor

DEFAULT_THRESHOLD = 0.5
MIN_PAIRS = 4
NUM_STEPS = 50
RIDGE = 1e-3


def best_logits(logits_NK: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return each picture's largest logit, and its largest among the classes other than its own."""
    others = logits_NK.clone()
    others[torch.arange(len(labels_N)), labels_N] = -torch.inf
    return logits_NK.amax(1), others.amax(1)


def calibrate(known: Tensor, left_out: Tensor) -> dict[str, Any] | None:
    """Fit the curve to pairs of largest logits; too few pairs, or only one class, give none."""
    if len(known) < MIN_PAIRS or not torch.isfinite(left_out).all():
        return None
    values = torch.cat([known, left_out]).double()
    centre, deviation = values.mean(), values.std().clamp(min=1e-9)
    targets = torch.cat([torch.zeros(len(known)), torch.ones(len(left_out))]).double()
    slope, offset = _fit((values - centre) / deviation, targets)
    curve = {"slope": slope / float(deviation), "offset": offset - slope * float(centre / deviation)}
    return {
        **curve,
        "threshold": DEFAULT_THRESHOLD,
        "num_pairs": len(known),
        "known_below": float((scores(curve, known) < DEFAULT_THRESHOLD).double().mean()),
        "left_out_above": float((scores(curve, left_out) >= DEFAULT_THRESHOLD).double().mean()),
    }


def scores(curve: dict[str, Any] | None, best: Tensor) -> Tensor:
    """Return the score of pictures with these largest logits; without a curve nothing is called unknown."""
    if curve is None:
        return torch.zeros(len(best), dtype=torch.float64)
    return torch.sigmoid(curve["slope"] * best.double() + curve["offset"])


def threshold_of(curve: dict[str, Any] | None) -> float:
    """Return the score from which a picture is called unknown unless another is asked for."""
    return DEFAULT_THRESHOLD if curve is None else float(curve["threshold"])


def _fit(values: Tensor, targets: Tensor) -> tuple[float, float]:
    """Return slope, never above zero, and offset of a logistic regression with a small ridge, by Newton's method."""
    design = torch.stack([values, torch.ones_like(values)], dim=1)
    weights = torch.zeros(2, dtype=torch.float64)
    ridge = RIDGE * len(values) * torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    for _ in range(NUM_STEPS):
        chance = torch.sigmoid(design @ weights)
        gradient = design.T @ (chance - targets) + ridge @ weights
        curvature = (design.T * (chance * (1 - chance)).clamp(min=1e-9)) @ design + ridge
        weights = weights - torch.linalg.solve(curvature, gradient)
    # Known pictures have the larger logits by construction; a rising curve could only be noise.
    return min(float(weights[0]), 0.0), float(weights[1])
