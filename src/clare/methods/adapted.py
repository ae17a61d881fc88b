"""What the methods that train one shared adapter have in common."""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods.base import Method, MethodSettings
from clare.seeds import generator_at
from clare.steps import Group, Phase, Sgd
from clare.tuners.adapter import AdapterSettings, FlatAdapter


class AdaptedSettings(MethodSettings):
    """The adapter and the recipe of its training."""

    adapter: AdapterSettings = Field(AdapterSettings(), description="The shared adapter.")
    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training a task.")
    batch_size: int = Field(32, ge=1, le=65_536, description="Images per step, over all ranks together.")
    learning_rate: float = Field(0.02, gt=0, le=100, description="Learning rate at the start of the cosine schedule.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")
    weight_decay: float = Field(5e-4, ge=0, le=1, description="Weight decay of what is being trained.")


class AdaptedMethod(Method):
    """A method that trains one adapter shared by all tasks."""

    settings: AdaptedSettings
    keeps_initial: ClassVar[bool] = False
    """Whether later tasks need the adapter's initial values, so that they are saved."""

    def __init__(self, backbone: Backbone, settings: AdaptedSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.adapter = FlatAdapter(backbone.vit, settings.adapter, generator_at(seed, "adapter"), self.keeps_initial)

    def features(self, images: Tensor, fixed: Tensor | None = None) -> Tensor:
        """Return the features of the adapted backbone."""
        with self.adapter.spread():
            return self.bare_features(images)

    def phase(self, name: str, epochs: int, groups: list[Group]) -> Phase:
        """Return a phase of the method's recipe over the task's images."""
        settings = self.settings
        optimizer = Sgd(settings.learning_rate, settings.momentum, settings.weight_decay)
        return Phase(name, epochs, groups, self.loss, optimizer, settings.batch_size)
