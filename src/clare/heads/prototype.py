"""A head whose rows are the class means of the finished features."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from clare.heads.drift import Drift, moved
from clare.heads.head import Head, ScaleSettings
from clare.heads.statistics import class_means
from clare.steps import Learning


class PrototypeSettings(ScaleSettings):
    """Class means, compared by cosines."""

    kind: Literal["prototype"] = Field("prototype", description="Class means of the finished features.")

    def make(self, num_features: int, seed: int) -> "PrototypeHead":
        """Return the head of so many features."""
        return PrototypeHead(num_features, self)


class PrototypeHead(Head):
    """One mean for each class."""

    def finish(self, num_new: int) -> Learning:
        """Add the means of the task's classes."""
        found = yield self.sweep(num_new)
        self.append(class_means(found))

    def renew(self, places: Tensor, counts: Tensor, sums: dict[str, Tensor]) -> Learning:
        """Take the mean of the samples of before, of which the row says where it is by now, and of the new ones."""
        old = counts.to(sums["count"])[:, None]
        total = old * self.rows.data[places].to(sums["sum"]) + sums["sum"]
        self.rows.data[places] = (total / (old + sums["count"][:, None])).to(self.rows)
        yield from ()

    def merge(self, other: Head, places: Tensor, before: Tensor, counts: Tensor) -> None:
        """Take the means of the samples of both."""
        is_new, theirs = places >= self.num_classes, other.rows.data.to(self.rows)
        ours = places[~is_new]
        shares = (counts[~is_new] / (before[ours] + counts[~is_new]).clamp(min=1)).to(self.rows)[:, None]
        self.rows.data[ours] += shares * (theirs[~is_new] - self.rows.data[ours])
        self.append(theirs[is_new])

    def carry_over(self, drift: Drift) -> None:
        """Move the means to where a task's training took the features."""
        self.rows.data.copy_(moved(self.rows.data, drift))
