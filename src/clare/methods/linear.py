"""The head alone on frozen features: the reference for what an adapter adds at the same head."""

from typing import ClassVar

from pydantic import Field

from clare.heads.kinds import FrozenHead
from clare.heads.prototype import PrototypeSettings
from clare.heads.trained import TrainedSettings
from clare.methods.base import Method, ReadingSettings, register
from clare.methods.protocols import CachesFeatures, Deploys, KeepsRowsAlone
from clare.settings import Acts
from clare.steps import Learning, Phase, Sgd, TaskInfo


class LinearSettings(ReadingSettings):
    """The recipe of the rows, used when they are trained."""

    acts: ClassVar[Acts] = {
        key: {"head.kind": ("trained",)}
        for key in ("epochs", "batch_size", "learning_rate", "momentum", "weight_decay")
    }

    head: FrozenHead = Field(PrototypeSettings(), description="The classifier.")
    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training a task's rows.")
    batch_size: int = Field(32, ge=1, le=65_536, description="Images per step, over all ranks together.")
    learning_rate: float = Field(0.1, gt=0, le=100, description="Learning rate of the rows.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")
    weight_decay: float = Field(5e-4, ge=0, le=1, description="Weight decay of the rows.")


@register
class Linear(Method, CachesFeatures, KeepsRowsAlone, Deploys):
    """Frozen features; only the head learns."""

    name = "linear"
    summary = "trains the head alone on frozen features"
    family = "references"
    fixed_shapes = True
    settings_type = LinearSettings
    settings: LinearSettings

    def learn(self, task: TaskInfo) -> Learning:
        """Train fresh rows if they are to stay as trained, then finish them."""
        settings = self.settings
        self.head.open_block(len(task.classes), task.generator("rows"))
        if isinstance(settings.head, TrainedSettings):
            optimizer = Sgd(settings.learning_rate, settings.momentum, settings.weight_decay)
            yield Phase("train", settings.epochs, self.head.groups(), self.loss, optimizer, settings.batch_size)
        yield from self.head.finish(len(task.classes))
