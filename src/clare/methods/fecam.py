"""FeCAM: frozen features, and each class judged in the metric of its own correlations.

Goswami, Liu, Twardowski, van de Weijer: "FeCAM: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free
Continual Learning" (NeurIPS 2023).
"""

from typing import Any, ClassVar

from pydantic import Field

from clare.heads.mahalanobis import MahalanobisSettings
from clare.methods._shared.first_task import FirstTaskMethod, FirstTaskSettings
from clare.methods.base import register
from clare.steps import Learning, TaskInfo


class FecamSettings(FirstTaskSettings):
    """The authors' settings on CIFAR-100, and a tuner, with which others have run the method."""

    defaults: ClassVar[Any] = {"tuner": "none"}
    head: MahalanobisSettings = Field(MahalanobisSettings(), description="The classifier, which is not trained.")


@register
class Fecam(FirstTaskMethod):
    """Nothing is trained, or the first task's tuner; a class is its mean and its correlations."""

    name = "fecam"
    summary = "classifies frozen features by distances in the metric of each class's own correlations"
    family = "classifiers"
    settings: FecamSettings

    def learn(self, task: TaskInfo) -> Learning:
        """Tune on the first task if asked, then add the classes."""
        yield from self.tune(task)
        self.head.open_block(len(task.classes), task.generator("rows"))
        yield from self.head.finish(len(task.classes))
