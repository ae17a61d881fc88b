"""Which task an image is of where nobody says so: rules on the answers of all tasks' networks, or on what is kept.

Shapes: B images, T tasks, K classes so far, D features. Scores (B, T) are larger for likelier tasks. Logits (B, T, K)
are those of all rows under the features of every task's network; own (T, K) marks the classes of each task.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clare.heads.statistics import class_means, class_sums
from clare.steps import Collect, Learning, Result, Solve, TaskInfo

RIDGE = 1e-3
"""What is added to all variances of a task's features, as a share of their mean."""
Rule = Callable[[Tensor, Tensor], Tensor]


def max_logit(logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
    """Return each task's largest logit."""
    return logits_BTK.masked_fill(~own_TK, -torch.inf).amax(2)


def msp(logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
    """Return the largest chance among each task's own classes."""
    return logits_BTK.masked_fill(~own_TK, -torch.inf).softmax(2).amax(2)


def entropy(logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
    """Return how sure each task is among its own classes: the negative entropy of their chances."""
    unsure: Tensor = torch.special.entr(logits_BTK.masked_fill(~own_TK, -torch.inf).softmax(2)).sum(2)
    return -unsure


def energy(logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
    """Return the logarithm of the sum of each task's exponential logits."""
    return logits_BTK.masked_fill(~own_TK, -torch.inf).logsumexp(2)


def one_shot(logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
    """Return by how much the mean answer becomes surer where each network has a larger share in it: SupSup's rule."""
    logs = logits_BTK.mean(1).log_softmax(1)
    chances = logs.exp()
    unsure = -(chances * logs).sum(1, keepdim=True)
    slope_BK = chances * (logs + unsure)
    return (slope_BK[:, None] * logits_BTK).sum(2)


RULES: dict[str, Rule] = {
    "max-logit": max_logit,
    "msp": msp,
    "entropy": entropy,
    "energy": energy,
    "one-shot": one_shot,
    # Who is told the task has no need of a rule; that of the largest logit is what plain logits do.
    "told": max_logit,
}


class Route(nn.Module):
    """A rule on the answers of the tasks' networks, which keeps nothing."""

    reads_bare = False
    """Whether the first part of an image's features is that of the bare backbone."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule

    def look(self, task: TaskInfo, bare: Callable[[Tensor], Tensor]) -> Learning:
        """Keep what is needed of the bare features of a task's images, before its network is trained."""
        yield from ()

    def learn(self, task: TaskInfo, found: Result) -> Learning:
        """Keep what is needed of the features that a task's images have under its own network."""
        yield from ()

    def resize(self, num_tasks: int, num_classes: int) -> None:
        """Make room for what was saved of so many tasks before it is loaded."""

    def scores(self, parts_BPD: Tensor, logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
        """Return how likely an image is of each task."""
        return self.rule(logits_BTK, own_TK)


class ByDistance(Route):
    """The least Mahalanobis distance to a class mean in the features of each task's own network (MORE)."""

    means: Tensor
    roots: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__(max_logit)
        self.register_buffer("means", torch.zeros(0, num_features))
        self.register_buffer("roots", torch.zeros(0, num_features, num_features))

    def learn(self, task: TaskInfo, found: Result) -> Learning:
        """Keep the class means, and a root of the inverse covariance that the task's classes share."""
        solved = yield Solve("distances", lambda: whitened(found["values"], found["labels"], len(task.classes)))
        self.means = torch.cat([self.means, solved["means"].to(self.means)])
        self.roots = torch.cat([self.roots, solved["root"].to(self.roots)[None]])

    def resize(self, num_tasks: int, num_classes: int) -> None:
        """Make room for means and roots."""
        self.means = self.means.new_zeros(num_classes, self.means.shape[1])
        self.roots = self.roots.new_zeros(num_tasks, *self.roots.shape[1:])

    def scores(self, parts_BPD: Tensor, logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
        """Return the negative squared distance to the nearest class of each task."""
        turned_BTD = torch.einsum("btd,tde->bte", parts_BPD, self.roots)
        return self.rule(-torch.cdist(turned_BTD, self.means[None]).square(), own_TK)


class ByBareMeans(Route):
    """The task of the class mean that is nearest to the features of the bare backbone."""

    reads_bare = True
    means: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__(max_logit)
        self.register_buffer("means", torch.zeros(0, num_features))

    def look(self, task: TaskInfo, bare: Callable[[Tensor], Tensor]) -> Learning:
        """Keep the class means of bare features."""
        found = yield Collect("bare features", bare)
        means = means_of(found["values"], found["labels"], len(task.classes))
        self.means = torch.cat([self.means, means.to(self.means)])

    def resize(self, num_tasks: int, num_classes: int) -> None:
        """Make room for the means."""
        self.means = self.means.new_zeros(num_classes, self.means.shape[1])

    def scores(self, parts_BPD: Tensor, logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
        """Return the cosine with the nearest class of each task."""
        cosines_BK = F.normalize(parts_BPD[:, 0], dim=1) @ F.normalize(self.means, dim=1).T
        return self.rule(cosines_BK[:, None], own_TK)


def means_of(values_ND: Tensor, labels_N: Tensor, num_classes: int) -> Tensor:
    """Return the mean of each class in double precision."""
    return class_means(class_sums(values_ND, labels_N, torch.ones_like(labels_N), num_classes, outer=False))


def whitened(values_ND: Tensor, labels_N: Tensor, num_classes: int) -> Result:
    """Return class means, and a root of the inverse of their shared covariance that both are to be turned by."""
    means = means_of(values_ND, labels_N, num_classes)
    centred = values_ND.double() - means[labels_N]
    covariance = centred.T @ centred / len(centred)
    ridge = RIDGE * covariance.diagonal().mean().clamp(min=1e-12) * torch.eye(len(covariance)).to(covariance)
    root = torch.linalg.inv(torch.linalg.cholesky(covariance + ridge)).T
    return {"means": means @ root, "root": root}
