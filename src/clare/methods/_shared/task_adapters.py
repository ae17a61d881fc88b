"""What the methods have in common that keep an adapter of every task, where a task goes on from the one before."""

from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.kinds import PrototypeAfterTraining
from clare.heads.realigned import RealignedSettings
from clare.methods._shared.recipe import RecipeMethod, RecipeSettings
from clare.methods.protocols import GrowsFeatures
from clare.steps import Collect, Learning, TaskInfo, answered
from clare.tuners.adapter import AdapterSettings
from clare.tuners.adapter_stack import AdapterStack

TASK_HEAD = RealignedSettings(
    align_epochs=30, align_samples=80, align_learning_rate=0.005, align_ridge=1e-4, align_decay="none"
)


class TaskAdapterSettings(RecipeSettings):
    """The adapters, and a head whose rows are trained again or are class means."""

    head: RealignedSettings | PrototypeAfterTraining = Field(TASK_HEAD, description="The classifier.")
    adapter: AdapterSettings = Field(AdapterSettings(bottleneck=16), description="The adapter of each task.")


class TaskAdapterMethod(RecipeMethod):
    """A method that trains a copy of the last task's adapter, and counts every class under its own task's adapter."""

    settings: TaskAdapterSettings

    def __init__(self, backbone: Backbone, settings: TaskAdapterSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.adapters = AdapterStack(backbone.vit, settings.adapter)

    def begin(self, task: TaskInfo) -> None:
        """Make rows for the task's classes, and keep the last task's adapter beside the one to be trained."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        if self.tasks:
            self.adapters.keep()
        else:
            self.adapters.draw(task.generator("adapter"))

    def task_features(self, images: Tensor) -> Tensor:
        """Return the features under the newest adapter."""
        return self.adapters.features(images, self.adapters.current[None])[:, 0]

    def finish(self, task: TaskInfo) -> Learning:
        """Finish the rows with features under the task's own adapter."""
        found = yield Collect("features", self.task_features)
        yield from answered(self.head.finish(len(task.classes)), found)


class GrowingAdapterMethod(TaskAdapterMethod, GrowsFeatures):
    """One that reads the features under all adapters side by side, of which a task adds some and changes none."""

    @property
    def features_version(self) -> int | None:
        """Nothing is fixed until the first task is learnt."""
        return 0 if self.tasks else None

    @property
    def num_parts(self) -> int:
        """One for each adapter."""
        return len(self.adapters)
