"""The quadratic discriminant as light as few samples allow, its shrinkage judged by samples left out in turn.

Shapes: K classes so far, D features, N samples.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.heads.drift import Drift, moved, stretched
from clare.heads.left_out import STRENGTHS, TEMPERATURES, best_strength, judged
from clare.heads.precision import Precision
from clare.heads.quadratic import QuadraticHead, QuadraticSettings
from clare.heads.scatter import FLOOR, sample_means, shrunk_covariance
from clare.heads.solved import SolvedHead
from clare.steps import Learning, Solve

MOST_ROWS = 4
"""Deviations are kept one by one up to this part of the number of features; more are added up to a square matrix."""


class GaussianSettings(QuadraticSettings):
    """The quadratic discriminant that chooses its shrinkage."""

    kind: Literal["gaussian"] = Field(  # type: ignore[assignment]
        "gaussian", description="The quadratic discriminant, kept in few numbers, which chooses its own shrinkage."
    )
    shrinkage: Annotated[float, Field(ge=0, le=1)] | Literal["left-out"] = Field(  # type: ignore[assignment]
        "left-out",
        description="Weight of the identity in the covariance; left-out: the one under which samples that are left out "
        "in turn are named best, over all tasks so far.",
    )
    own_share: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = Field(
        "auto",
        description="Weight of a class's own covariance beside that of all classes; auto: by how many images there "
        "are to a class.",
    )
    num_directions: int = Field(
        4, ge=1, le=10_000, description="Directions, the leading ones, of a class's own covariance."
    )

    def make(self, num_features: int, seed: int) -> "GaussianHead":
        """Return the head of so many features."""
        return GaussianHead(num_features, self)


class GaussianHead(QuadraticHead):
    """Class means, a few directions of each, and the deviations of all samples, one by one as long as they are few."""

    settings: GaussianSettings
    roots: Tensor
    likelihoods: Tensor

    def __init__(self, num_features: int, settings: GaussianSettings) -> None:
        super().__init__(num_features, settings)
        self.scatter = self.scatter[:0]
        self.register_buffer("roots", torch.zeros(0, num_features))
        self.register_buffer("likelihoods", torch.zeros(len(STRENGTHS), len(TEMPERATURES), dtype=torch.float64))

    def finish(self, num_new: int) -> Learning:
        """Add the task's classes, judge shrinkage by their samples, and make all rows anew."""
        found = yield self.sweep(num_new)
        sums, before = self.summed(found, num_new), len(self.means)
        self.add_classes(sums)
        judged = yield Solve("likelihoods", lambda: self._judged(sums["values"], before + sums["labels"]))
        self.likelihoods = judged["likelihoods"].to(self.likelihoods)
        solved = yield Solve("rows", lambda: {"rows": self.solve()})
        self.replace(solved["rows"])

    def renew(self, places: Tensor, counts: Tensor, sums: dict[str, Tensor]) -> Learning:
        """Take over the sums of more samples, judge shrinkage by them, and make all rows anew."""
        self.add_samples(places, sums)
        self.likelihoods = self._judged(sums["values"], places[sums["labels"]])["likelihoods"]
        self.replace(self.solve())
        yield from ()

    def _judged(self, samples: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the likelihoods of all samples so far under each strength."""
        if self.settings.shrinkage != "left-out":
            return {"likelihoods": self.likelihoods}
        precision_of = self._precisions()
        more = judged(
            samples, labels, self.means, self.counts, lambda strength: precision_of(self._shrinkage_at(strength))
        )
        return {"likelihoods": self.likelihoods + more.to(self.likelihoods)}

    def summed(self, found: dict[str, Tensor], num_classes: int) -> dict[str, Tensor]:
        """Return count and sum per class, the features with their labels, and how far each lies from its mean."""
        values, labels = found["values"].double(), found["labels"]
        count = torch.bincount(labels, minlength=num_classes).double()
        total = values.new_zeros(num_classes, self.num_features).index_add(0, labels, values)
        sums = {**found, "count": count, "sum": total}
        return {**sums, "apart": values - sample_means(sums)[labels]}

    def sums_of(self, chosen: Tensor) -> dict[str, Tensor]:
        """Return the sums of some classes, of which nothing is to be added to what all share."""
        return {**super().sums_of(chosen), "apart": self.roots[:0].double()}

    def gather(self, sums: dict[str, Tensor]) -> None:
        """Keep how samples of new classes scatter."""
        self._keep(sums["apart"])

    def gather_more(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Keep how more samples of known classes scatter, and how far the means of both lie apart."""
        old, new = self.counts[places].double(), sums["count"]
        way = (sample_means(sums) - self.means[places].double()) * (old * new / (old + new).clamp(min=1)).sqrt()[
            :, None
        ]
        self._keep(torch.cat([sums["apart"], way[way.any(1)]]))

    def add_shared(self, other: SolvedHead) -> None:
        """Take over the scatter of another head, and how it judged."""
        assert isinstance(other, GaussianHead)
        if len(other.scatter):
            self.scatter = self.scatter + other.scatter if len(self.scatter) else other.scatter.clone()
        self._keep(other.roots)
        self.likelihoods = self.likelihoods + other.likelihoods

    def _keep(self, rows: Tensor) -> None:
        """Keep deviations; when they take more room than they need, add them up."""
        self.roots = torch.cat([self.roots, rows.to(self.roots)])
        if MOST_ROWS * len(self.roots) > self.num_features:
            self.scatter, self.roots = self._whole().to(self.roots), self.roots[:0]

    def _whole(self) -> Tensor:
        """Return the sum of outer products of all deviations, shape (D, D), in double precision."""
        rows = self.roots.double()
        return rows.T @ rows + self.scatter.double() if len(self.scatter) else rows.T @ rows

    def precision(self, shrinkage: float) -> Precision:
        """Return the inverse of the covariance of all classes, shrunk as much."""
        return self._precisions()(shrinkage)

    def _precisions(self) -> Callable[[float], Precision]:
        """Return what makes the inverse of the covariance under a shrinkage."""
        number = max(float(self.counts.sum()), 1.0)
        if len(self.scatter):
            whole = self._whole()
            return lambda shrinkage: Precision.of_matrix(shrunk_covariance(self.means, whole, number, shrinkage))
        variance = float(self.roots.double().square().sum()) / (number * self.num_features)
        floor = max(FLOOR * float(self.means.double().square().mean()), torch.finfo(torch.float64).tiny)
        return lambda shrinkage: Precision.of_rows(self.roots, (1 - shrinkage) / number, shrinkage * variance + floor)

    @property
    def shrinkage(self) -> float:
        """Weight of the identity in the covariance of all classes so far."""
        chosen = self.settings.shrinkage
        return self._shrinkage_at(best_strength(self.likelihoods)) if chosen == "left-out" else chosen

    def _shrinkage_at(self, strength: float) -> float:
        """Return the weight of the identity under a strength, which stands for so many samples to a feature."""
        weight = strength * self.num_features
        return weight / (weight + float(self.counts.sum()))

    def forget(self, place: int) -> None:
        """Let the deviations stand for as many samples as the other classes have."""
        self.roots = self.roots * (1 - self.counts[place] / self.counts.sum()).sqrt()
        super().forget(place)

    def carry_over(self, drift: Drift) -> None:
        """Move class means and all covariances to where a task's training took the features."""
        self.roots = stretched(self.roots.T, drift).T.contiguous()
        if len(self.scatter):
            super().carry_over(drift)
        else:
            self.means, self.factors = moved(self.means, drift), stretched(self.factors, drift)

    def packed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what is to be saved: no rows, which follow from the rest, and of a symmetric matrix one half."""
        kept = {name: tensor for name, tensor in tensors.items() if name != "rows"}
        if len(kept["scatter"]):
            rows, columns = torch.tril_indices(self.num_features, self.num_features, device=kept["scatter"].device)
            kept["scatter"] = kept["scatter"][rows, columns]
        return kept

    def unpacked(self, saved: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return saved tensors in full, after room was made for them."""
        full = dict(saved)
        if full["scatter"].dim() == 1:
            rows, columns = torch.tril_indices(self.num_features, self.num_features, device=full["scatter"].device)
            half, whole = full["scatter"], full["scatter"].new_zeros(self.num_features, self.num_features)
            whole[rows, columns] = half
            whole[columns, rows] = half
            full["scatter"] = whole
        self.scatter, self.roots = (self.rows.new_zeros(full[name].shape) for name in ("scatter", "roots"))
        return full
