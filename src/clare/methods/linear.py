"""The head alone on frozen features: the reference for what an adapter adds at the same head."""

from typing import Any, ClassVar

from pydantic import Field

from clare.heads.kinds import FrozenHead
from clare.heads.prototype import PrototypeSettings
from clare.heads.trained import TrainedSettings
from clare.methods._shared.recipe import RecipeMethod, SgdSettings
from clare.methods.base import ReadingSettings, register
from clare.methods.protocols import CachesFeatures, Deploys, KeepsRowsAlone
from clare.settings import Acts
from clare.steps import Learning, TaskInfo


class LinearSettings(SgdSettings, ReadingSettings):
    """The recipe of the rows, used when they are trained."""

    acts: ClassVar[Acts] = {
        key: {"head.kind": ("trained",)}
        for key in ("epochs", "batch_size", "learning_rate", "momentum", "weight_decay")
    }

    defaults: ClassVar[Any] = {"learning_rate": 0.1}
    head: FrozenHead = Field(PrototypeSettings(), description="The classifier.")


@register
class Linear(RecipeMethod, CachesFeatures, KeepsRowsAlone, Deploys):
    """Frozen features; only the head learns."""

    name = "linear"
    summary = "trains the head alone on frozen features"
    family = "references"
    fixed_shapes = True
    settings: LinearSettings

    def learn(self, task: TaskInfo) -> Learning:
        """Train fresh rows if they are to stay as trained, then finish them."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        if isinstance(self.settings.head, TrainedSettings):
            yield self.phase("train", self.settings.epochs, self.head.groups())
        yield from self.head.finish(len(task.classes))
