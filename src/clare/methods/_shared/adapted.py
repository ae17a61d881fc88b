"""What the methods that train one shared adapter have in common."""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.recipe import RecipeMethod, RecipeSettings
from clare.methods.base import ReadingSettings, bare_features
from clare.methods.protocols import Deployed, Deploys, KeepsRowsAlone
from clare.seeds import generator_at
from clare.tuners.adapter import AdapterSettings, FlatAdapter


class AdaptedSettings(RecipeSettings, ReadingSettings):
    """The adapter and the recipe of its training."""

    adapter: AdapterSettings = Field(AdapterSettings(), description="The shared adapter.")


class AdaptedMethod(RecipeMethod, Deploys, KeepsRowsAlone):
    """A method that trains one adapter shared by all tasks."""

    settings: AdaptedSettings
    keeps_initial: ClassVar[bool] = False
    """Whether later tasks need the adapter's initial values, so that they are saved."""

    def __init__(self, backbone: Backbone, settings: AdaptedSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.adapter = FlatAdapter(backbone.vit, settings.adapter, generator_at(seed, "adapter"), self.keeps_initial)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the adapted backbone."""
        with self.adapter.spread():
            return bare_features(self, images)

    def deployed(self) -> Deployed:
        """Return the adapters."""
        return Deployed(adapters=self.adapter.parts(), adapter_scale=self.adapter.settings.scale)
