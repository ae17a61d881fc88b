"""SimpleCIL: class means of the frozen backbone's features; nothing is trained.

Zhou et al., "Revisiting Class-Incremental Learning with Pre-Trained Models" (IJCV 2024).
"""

from pydantic import Field

from clare.heads.prototype import PrototypeSettings
from clare.methods.base import Method, ReadingSettings, register
from clare.methods.protocols import CachesFeatures, Deploys, KeepsRowsAlone
from clare.steps import Learning, TaskInfo


class SimpleCilSettings(ReadingSettings):
    """The head alone, whose rows are class means by definition."""

    head: PrototypeSettings = Field(PrototypeSettings(), description="The classifier.")


@register
class SimpleCil(Method, CachesFeatures, KeepsRowsAlone, Deploys):
    """Frozen features, rows are class means."""

    name = "simplecil"
    summary = "class means of the frozen features, no training of the backbone or an adapter"
    family = "references"
    fixed_shapes = True
    settings: SimpleCilSettings

    def learn(self, task: TaskInfo) -> Learning:
        """Finish rows from one pass over the task."""
        yield from self.head.finish(len(task.classes))
