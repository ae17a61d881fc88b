"""The space between classes, where samples of a class scatter alike in all directions, and scores of strangers there.

Shapes: B pictures, K classes, D features, R directions, N pictures to learn from, S scores.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clare.heads.precision import Precision
from clare.heads.statistics import shrinkage_for


class Space:
    """Coordinates between classes, and what of a picture lies outside of them."""

    def __init__(self, features_ND: Tensor, labels_N: Tensor) -> None:
        """Take the directions between class means in the metric of the covariance within classes."""
        features, number = features_ND.double(), int(labels_N.max()) + 1
        self.counts = torch.bincount(labels_N, minlength=number).double()
        means = features.new_zeros(number, features.shape[1]).index_add(0, labels_N, features) / self.counts[:, None]
        apart, (size, width) = features - means[labels_N], features.shape
        shrinkage, variance = shrinkage_for(width, size), float(apart.square().mean())
        self.precision = Precision.of_rows(apart, (1 - shrinkage) / size, shrinkage * variance)
        self.centre = self.counts / self.counts.sum() @ means
        solved = self.precision.solve((means - self.centre).T)
        values, vectors = torch.linalg.eigh((means - self.centre) @ solved)
        kept = values > values.amax() * 1e-9
        roots = values[kept].sqrt()
        self.directions, self.means = solved @ (vectors[:, kept] / roots), vectors[:, kept] * roots

    def see(self, features_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the coordinates of pictures, and the squared length of what lies outside."""
        apart = features_BD.double() - self.centre
        inside = apart @ self.directions
        return inside, (self.precision.squares(apart) - inside.square().sum(1)).clamp(min=0)


def to_middle(inside_BR: Tensor, means_KR: Tensor, counts_K: Tensor) -> Tensor:
    """Return the squared distance to the middle of all samples, which scatter as within classes and as class means."""
    shares = counts_K / counts_K.sum()
    apart = means_KR - shares @ means_KR
    around = torch.eye(apart.shape[1]).double() + apart.T * shares @ apart
    inside = inside_BR - shares @ means_KR
    solved: Tensor = inside @ torch.linalg.inv(around)
    return (solved * inside).sum(1)


def scores(space: Space, features_BD: Tensor, without: Tensor | None = None) -> dict[str, Tensor]:
    """Return simple scores of pictures, the larger the stranger; some classes may be left out as if never taught."""
    inside, outside = space.see(features_BD)
    taught = torch.ones(len(space.means), dtype=torch.bool)
    if without is not None:
        taught[without] = False
    means = space.means[taught]
    squares = (inside[:, None] - means).square().sum(2)
    nearest = squares.topk(2, 1, largest=False).values
    middle = to_middle(inside, means, space.counts[taught])
    cosines = F.normalize(inside, dim=1) @ F.normalize(means, dim=1).T
    return {
        "distance to the nearest class": nearest[:, 0] + outside,
        "outside of the classes": outside,
        "relative distance, all of the middle": nearest[:, 0] - middle,
        "relative distance, 0.95 of the middle (before)": nearest[:, 0] - 0.95 * middle + 0.05 * outside,
        "ratio of the two nearest classes": nearest[:, 0] / nearest[:, 1],
        "gap between the two nearest classes": nearest[:, 0] - nearest[:, 1],
        "largest softmax of distances": -(-squares / 2).softmax(1).amax(1),
        "largest softmax of distances by 64": -(-squares / 128).softmax(1).amax(1),
        "cosine with the nearest class": -cosines.amax(1),
        "contrast with all classes": nearest[:, 0] - squares.mean(1),
    }


def fit_line(scores_BS: Tensor, is_stranger_B: Tensor, ridge: float) -> tuple[Tensor, float]:
    """Return weights and offset of a logistic regression in which known pictures and strangers weigh the same."""
    targets = is_stranger_B.double()
    weights = torch.where(is_stranger_B, 0.5 / targets.mean(), 0.5 / (1 - targets.mean()))
    mean, deviation = scores_BS.mean(0), scores_BS.std(0).clamp(min=1e-9)
    design = torch.cat([(scores_BS - mean) / deviation, torch.ones(len(targets), 1).double()], 1)
    penalty = ridge * len(targets) * torch.eye(design.shape[1]).double()
    penalty[-1, -1] = 1e-9
    line = design.new_zeros(design.shape[1])
    for _ in range(50):
        chance = torch.sigmoid(design @ line)
        curvature = (design.T * (weights * chance * (1 - chance)).clamp(min=1e-9)) @ design + penalty
        line = line - torch.linalg.solve(curvature, design.T @ (weights * (chance - targets)) + penalty @ line)
    slopes = line[:-1] / deviation
    return slopes, float(line[-1] - slopes @ mean)
