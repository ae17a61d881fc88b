"""What the methods that tune the backbone on the first task alone have in common."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.families import Model
from clare.backbones.vit import Backbone
from clare.heads.trained import TrainedSettings
from clare.methods._shared.recipe import RecipeMethod, SgdSettings
from clare.methods.base import ReadingSettings, bare_features
from clare.methods.protocols import CachesFeatures
from clare.seeds import generator_at
from clare.settings import Acts
from clare.steps import Learning, TaskInfo
from clare.tuners.adapter import AdapterSettings, FlatAdapter
from clare.tuners.scale_shift import ScaleShift
from clare.tuners.token_prompts import TokenPrompts
from clare.tuners.tuner import Tuner

TUNING_HEAD = TrainedSettings(learnt_scale=True)
"""The classifier that is trained beside a tuner, and classifies nothing afterwards."""

OF_ONE_TUNER: Acts = {"adapter": {"tuner": ("adapter",)}, "num_prompts": {"tuner": ("vpt-deep", "vpt-shallow")}}
"""What only some tuners have."""

TUNERS = ("adapter", "ssf", "vpt-deep", "vpt-shallow")


class FirstTaskSettings(SgdSettings, ReadingSettings):
    """The tuner and the recipe of its training."""

    acts: ClassVar[Acts] = {
        **OF_ONE_TUNER,
        **{key: {"tuner": TUNERS} for key in ("epochs", "batch_size", "learning_rate", "momentum", "weight_decay")},
    }

    defaults: ClassVar[Any] = {"batch_size": 48, "learning_rate": 0.01}
    tuner: Literal["adapter", "ssf", "vpt-deep", "vpt-shallow", "none"] = Field(
        "adapter",
        description="What the first task trains: an adapter beside every MLP, scales and shifts of all layers' outputs "
        "(ssf), prompts for every block, prompts for the first block, or nothing.",
    )
    adapter: AdapterSettings = Field(AdapterSettings(), description="The adapter.")
    num_prompts: int = Field(5, ge=1, le=1000, description="Prompts that a block gets.")
    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of tuning on the first task.")


def make_tuner(model: Model, settings: FirstTaskSettings, generator: torch.Generator) -> Tuner | None:
    """Attach the tuner that the settings name."""
    if settings.tuner == "adapter":
        return FlatAdapter(model, settings.adapter, generator, keeps_initial=False)
    if settings.tuner == "ssf":
        return ScaleShift(model, generator)
    if settings.tuner == "none":
        return None
    return TokenPrompts(model, settings.num_prompts, deep=settings.tuner == "vpt-deep")


class FirstTaskMethod(RecipeMethod, CachesFeatures):
    """A method whose features are tuned on the first task and never change again."""

    fixed_shapes = True
    settings: FirstTaskSettings

    def __init__(self, backbone: Backbone, settings: FirstTaskSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.num_tuned = self.head.num_features
        self.tuner = make_tuner(backbone.vit, settings, generator_at(seed, "tuner"))

    @property
    def features_version(self) -> int | None:
        """Nothing is fixed until the first task is learnt."""
        return 0 if self.tasks else None

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the tuned backbone."""
        return self.tuned_features(images)

    def tuned_features(self, images: Tensor) -> Tensor:
        """Return the features of the tuned backbone; without a tuner it is bare."""
        if self.tuner is None:
            return bare_features(self, images)
        with self.tuner.spread():
            return bare_features(self, images)

    def tune(self, task: TaskInfo) -> Learning:
        """Train the tuner if this is the first task; the rows trained with it are thrown away."""
        if self.tasks or self.tuner is None:
            return
        head = TUNING_HEAD.make(self.num_tuned, self.seed).to(self.head.rows.device)
        head.open_block(len(task.classes), task.generator("tuning rows"))

        def loss(images: Tensor, labels: Tensor) -> Tensor:
            return head.block_loss(self.tuned_features(images), labels)

        yield self.phase("tune", self.settings.epochs, [*self.tuner.groups(), *head.groups()], loss=loss)
