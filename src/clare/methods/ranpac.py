"""RanPAC: ridge regression on random features of a backbone that is tuned on the first task.

McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning" (NeurIPS 2023).
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from clare.heads.ridge import FixedRidgeSettings, RidgeHead
from clare.methods._shared.first_task import FirstTaskMethod, FirstTaskSettings
from clare.methods.base import register
from clare.seeds import generator_at
from clare.steps import Collect, Learning, Notice, Result, Solve, TaskInfo


class RanPacHeadSettings(FixedRidgeSettings):
    """The random projection and the regression."""

    num_projected: int = Field(10_000, ge=1, le=100_000, description="Random features of an image.")
    ridge: float = Field(
        0.0, ge=0, le=1e12, description="Ridge of the regression; 0 chooses it for each task on a fifth of its images."
    )
    precision: Literal["float32", "float64"] = Field(
        "float32", description="Type of sums and solutions; float64 takes twice the memory and allows smaller ridges."
    )

    def make(self, num_features: int, seed: int) -> RidgeHead:
        """Return the head of so many features, whose projection depends on the seed alone."""
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        return RidgeHead(num_features, self, generator_at(seed, "projection"), dtype=dtype, keeps_classes=False)


class RanPacSettings(FirstTaskSettings):
    """The tuner and the head."""

    head: RanPacHeadSettings = Field(RanPacHeadSettings(), description="The classifier, which is solved, not trained.")


@register
class RanPac(FirstTaskMethod):
    """Frozen features, fixed random features of them, and a linear classifier in closed form."""

    name = "ranpac"
    summary = "tunes the backbone on the first task, then solves ridge regression on random features of all tasks"
    family = "projections"
    tiny: ClassVar[dict[str, Any]] = {"head": {"num_projected": 64}}
    settings: RanPacSettings
    head: RidgeHead

    def learn(self, task: TaskInfo) -> Learning:
        """Tune on the first task, add the task to the sums, and solve for the rows of all classes."""
        settings = self.settings.head
        yield from self.tune(task)
        collected = yield Collect("features", self.features)
        features, labels = collected["values"], collected["labels"]
        self.head.add(features, labels, len(task.classes))
        order = torch.randperm(len(labels), generator=task.generator("split")).to(labels.device)

        def solve() -> Result:
            asked = settings.ridge or self.head.choose_ridge(features[order], labels[order], len(task.classes))
            rows, used = self.head.solve_at(asked)
            return {"rows": rows, "ridges": rows.new_tensor([asked, used])}

        solved = yield Solve("ridge", solve)
        self.head.replace(solved["rows"])
        asked, used = solved["ridges"].tolist()
        if used > asked:
            yield Notice(
                f"a ridge of {asked:.0e} is lost in the rounding of {settings.precision} sums: {used:.0e} was used"
            )
