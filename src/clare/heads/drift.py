"""How the features of earlier classes moved while a task was learnt, estimated from the task's own images.

Shapes: B images, K classes of earlier tasks, D features.
"""

import torch
from torch import Tensor

STRENGTHS = (10.0, 1.0, 0.1, 0.01)
"""Ridge strengths to choose from, in units of the features' mean variance."""
MAX_FOLDS = 5
LEAST_WEIGHT = 1e-5
"""What an image counts that is far from a class, beside the one of an image in its middle."""

NUM_DEVIATIONS = 32
"""Images whose deviations from their class mean stand for how features of a class scatter."""

Drift = dict[str, Tensor]
"""`centre` (D) and `shift` (D): how a feature at the centre moves; `slope` (D, D): how that changes away from it.

Or `moves` (K, D): how far each class mean moves, and nothing else does.
"""


def fit_drift_of_parts(before_BD: Tensor, after_BD: Tensor, labels_B: Tensor, sizes: list[int]) -> Drift:
    """Return the drift of features made of parts of these sizes, each of which moves by itself."""
    pairs = zip(torch.split(before_BD, sizes, dim=1), torch.split(after_BD, sizes, dim=1), strict=True)
    drifts = [fit_drift(before, after, labels_B) for before, after in pairs]
    return {
        "centre": torch.cat([drift["centre"] for drift in drifts]),
        "shift": torch.cat([drift["shift"] for drift in drifts]),
        "slope": torch.block_diag(*[drift["slope"] for drift in drifts]),  # type: ignore[no-untyped-call]
    }


def fit_drift(before_BD: Tensor, after_BD: Tensor, labels_B: Tensor) -> Drift:
    """Return the drift that best predicts how classes move that were left out of the fit, or none at all."""
    before, after = before_BD.double(), after_BD.double()
    num_folds = min(MAX_FOLDS, int(labels_B.max()) + 1)
    still = _still(before)
    if num_folds < 2:
        return still
    errors = torch.zeros(2 + len(STRENGTHS), dtype=before.dtype, device=before.device)
    for fold in range(num_folds):
        is_held = labels_B % num_folds == fold
        candidates = [still, *_candidates(before[~is_held], after[~is_held])]
        held = (before[is_held], after[is_held], labels_B[is_held])
        errors += torch.stack([_error(drift, *held) for drift in candidates])
    return [still, *_candidates(before, after)][int(errors.argmin())]


def accuracy_lost(
    means_KD: Tensor, before_BD: Tensor, after_BD: Tensor, labels_B: Tensor, follows: bool
) -> dict[str, Tensor]:
    """Return the share of earlier classes' features that would no longer be named, had they moved as a task's did.

    Features of an earlier class are its mean with the deviations of the task's own images, named by the nearest cosine
    among earlier means, which move along where they follow, and the means of the task's own classes.
    """
    if int(labels_B.max()) > 0:
        drift = fit_drift(before_BD, after_BD, labels_B)
    else:
        drift = {"moves": (after_BD - before_BD).mean(0)}
    gone, old, new = moved(means_KD, drift), _means(before_BD, labels_B), _means(after_BD, labels_B)
    was = _share_named(means_KD, _deviations(before_BD, labels_B, old), torch.cat([means_KD, old.to(means_KD)]))
    rows = torch.cat([gone if follows else means_KD, new.to(means_KD)])
    now = _share_named(gone, _deviations(after_BD, labels_B, new), rows)
    return {"lost": (was - now).clamp(min=0)}


def _means(features_BD: Tensor, labels_B: Tensor) -> Tensor:
    """Return the mean feature of each class."""
    members = torch.nn.functional.one_hot(labels_B).T.to(features_BD)
    return (members @ features_BD) / members.sum(1, keepdim=True).clamp(min=1)


def _deviations(features_BD: Tensor, labels_B: Tensor, means_KD: Tensor) -> Tensor:
    """Return how far some images, spread over all, lie from the mean of their class."""
    chosen = torch.linspace(0, len(labels_B) - 1, min(NUM_DEVIATIONS, len(labels_B))).long().to(labels_B.device)
    return features_BD[chosen] - means_KD[labels_B[chosen]]


def _share_named(means_KD: Tensor, deviations_RD: Tensor, rows_KD: Tensor) -> Tensor:
    """Return the share of features around the means that are nearest to the row of their class."""
    normalise = torch.nn.functional.normalize
    rows, classes = normalise(rows_KD, dim=1), torch.arange(len(means_KD), device=means_KD.device)
    named = [(normalise(means_KD + each, dim=1) @ rows.T).argmax(1) == classes for each in deviations_RD.to(means_KD)]
    return torch.stack(named).double().mean()


def _still(features_BD: Tensor) -> Drift:
    """Return the drift that moves nothing."""
    size = features_BD.shape[1]
    nothing = features_BD.new_zeros(size)
    return {"centre": nothing, "shift": nothing, "slope": features_BD.new_zeros(size, size)}


def _candidates(before_BD: Tensor, after_BD: Tensor) -> list[Drift]:
    """Return a common shift, and shifts with slopes by ridge regression from the strongest ridge to the weakest."""
    moves = after_BD - before_BD
    centre, shift = before_BD.mean(0), moves.mean(0)
    features = before_BD - centre
    covariance = features.T @ features / len(features)
    # A ridge of exactly nothing could divide by nothing where all features agree.
    unit = covariance.diagonal().mean() + torch.finfo(covariance.dtype).tiny
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    ridges = torch.stack([unit * strength * identity for strength in STRENGTHS])
    slopes = torch.cholesky_solve(
        features.T @ (moves - shift) / len(features), torch.linalg.cholesky(covariance + ridges)
    )
    return [{"centre": centre, "shift": shift, "slope": slope} for slope in [torch.zeros_like(slopes[0]), *slopes]]


def kernel_moves(before_BD: Tensor, after_BD: Tensor, means_KD: Tensor, width: float) -> Tensor:
    """Return how far each class mean moves: the mean of the images' moves, those nearby counting most."""
    before, moves = before_BD.double(), (after_BD - before_BD).double()
    squares = torch.cdist(means_KD.double(), before).square()
    weights = (-squares / (2 * width**2)).exp() + LEAST_WEIGHT
    return ((weights / weights.sum(1, keepdim=True)) @ moves).to(means_KD)


def _error(drift: Drift, before_BD: Tensor, after_BD: Tensor, labels_B: Tensor) -> Tensor:
    """Return how far the moved class means lie from where they really went, squared and summed over the classes."""
    members = torch.nn.functional.one_hot(labels_B).T.to(before_BD.dtype)
    members = members[members.sum(1) > 0]
    means = members / members.sum(1, keepdim=True)
    return (moved(means @ before_BD, drift) - means @ after_BD).square().sum()


def moved(features_KD: Tensor, drift: Drift) -> Tensor:
    """Return features, or class means, where the drift takes them."""
    if "moves" in drift:
        return features_KD + drift["moves"].to(features_KD)
    centre, shift, slope = (drift[key].to(features_KD) for key in ("centre", "shift", "slope"))
    return features_KD + shift + (features_KD - centre) @ slope


def stretched(factors_KDD: Tensor, drift: Drift) -> Tensor:
    """Return roots of covariances as the drift leaves them; a root L stands for the covariance L Lᵀ."""
    if "moves" in drift:
        return factors_KDD.clone()
    slope = drift["slope"].to(factors_KDD)
    return factors_KDD + slope.T @ factors_KDD
