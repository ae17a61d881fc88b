"""Sets of names that hold the right one as often as is asked for: split conformal prediction.

Of all such sets those of every name above one least probability are the smallest on average (Sadinle, Lei and
Wasserman, "Least Ambiguous Set-Valued Classifiers with Bounded Error Levels", 2019). Shapes: N pictures held back, B
asked about, K names.
"""

import math

import torch
from torch import Tensor

from clare.errors import ModelError


def least_probability(probabilities_NK: Tensor, labels_N: Tensor, coverage: float) -> float:
    """Return the probability from which on names belong to a set, learnt from pictures that were held back."""
    number = len(labels_N)
    # The picture that is asked about counts as one more, which makes the promise hold for any number of pictures.
    place = math.ceil((number + 1) * coverage - 1e-9)
    if place > number:
        needed = math.ceil(coverage / (1 - coverage) - 1e-9)
        raise ModelError(
            f"sets that hold the right name in {100 * coverage:g} % of cases need {needed} held-back pictures, and the "
            f"model keeps {number}; ask for less coverage, or teach it more pictures"
        )
    own = probabilities_NK.gather(1, labels_N[:, None]).squeeze(1)
    return float(own.sort(descending=True).values[place - 1])


def name_sets(probabilities_BK: Tensor, least: float) -> list[list[int]]:
    """Return the places of the names of each set, the likeliest first, which is always there."""
    values, places = probabilities_BK.sort(dim=1, descending=True, stable=True)
    sizes = (values >= least).sum(1).clamp(min=1)
    return [row[:size].tolist() for row, size in zip(places, sizes.tolist(), strict=True)]


def empirical_coverage(probabilities_BK: Tensor, labels_B: Tensor, least: float) -> tuple[float, float]:
    """Return how often sets hold the right name, and how many names they have on average."""
    found = name_sets(probabilities_BK, least)
    is_in = [label in names for names, label in zip(found, labels_B.tolist(), strict=True)]
    return sum(is_in) / len(is_in), float(torch.tensor([len(names) for names in found]).double().mean())
