"""Methods that each break a promise, for the tests of the contract itself."""

from collections.abc import Generator

import torch
from pydantic import ConfigDict, Field, field_validator
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods.base import MethodSettings
from clare.methods.er import ExperienceReplay
from clare.methods.finetune import FineTune
from clare.methods.simplecil import SimpleCil
from clare.steps import Group, Learning, Notice, Phase, Result, Sgd, Step, TaskInfo


class Confused(SimpleCil):
    """Gives every image the same features."""

    name = "confused"

    @property
    def features_version(self) -> None:  # type: ignore[override]
        return None

    def features(self, images: Tensor) -> Tensor:
        return torch.ones_like(super().features(images))


class Forgetful(FineTune):
    """Keeps something outside its state that later tasks depend on."""

    name = "forgetful"

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)  # type: ignore[arg-type]
        self.pull = 0.0

    def learn(self, task: TaskInfo) -> Learning:
        yield from super().learn(task)
        self.pull += 0.1
        self.adapter.values.add_(self.pull)


class Moody(FineTune):
    """Draws from a source of its own that no seed sets."""

    name = "moody"
    mood = torch.Generator().manual_seed(0)

    def learn(self, task: TaskInfo) -> Learning:
        yield from super().learn(task)
        self.adapter.values.add_(torch.rand(self.adapter.values.shape, generator=self.mood))


class Thawing(SimpleCil):
    """Changes the backbone after a task."""

    name = "thawing"

    def learn(self, task: TaskInfo) -> Learning:
        yield from super().learn(task)
        next(self.backbone.parameters()).add_(1e-3)


class Meddling(FineTune):
    """Changes a tensor outside the groups while a phase runs."""

    name = "meddling"

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            self.head.rows.add_(1.0)
        return super().loss(images, labels)


class Idle(FineTune):
    """Has a phase that trains nothing."""

    name = "idle"

    def learn(self, task: TaskInfo) -> Learning:
        self.head.open_block(len(task.classes), task.generator("rows"))
        closed = torch.zeros_like(self.adapter.values, dtype=torch.bool)
        yield Phase("nothing", 1, [Group(self.adapter.values, mask=closed)], self.loss, Sgd(0.1), 8)
        yield from self.head.finish(len(task.classes))


class Mislabelling(ExperienceReplay):
    """Keeps pictures under another class than their own."""

    name = "mislabelling"

    def remember(self, task: TaskInfo) -> Generator[Step, Result, Tensor]:
        stays = yield from super().remember(task)
        self.memory.labels[: len(self.memory)] += 1
        return stays


class Blind(SimpleCil):
    """Learns a task without looking at it."""

    name = "blind"

    def learn(self, task: TaskInfo) -> Learning:
        yield Notice("no need to look")
        self.head.append(torch.eye(24)[: len(task.classes)])


class Irreversible(FineTune):
    """Counts the tasks it begins where no snapshot looks, and is the surer the more there were."""

    name = "irreversible"
    num_begun = 0

    def learn(self, task: TaskInfo) -> Learning:
        self.num_begun += 1
        yield from super().learn(task)

    def classify(self, features: Tensor) -> Tensor:
        return self.num_begun * super().classify(features)


class Nearsighted(SimpleCil):
    """Looks at the last class token whatever the head asks for."""

    name = "nearsighted"

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.backbone(images)
        return features.repeat(1, self.head.num_features // features.shape[1])


class UnboundedSettings(MethodSettings):
    """A setting without an upper bound."""

    rate: float = Field(1.0, gt=0, description="How fast.")


class Unbounded(SimpleCil):
    """Has a setting without bounds."""

    name = "unbounded"
    settings_type = UnboundedSettings


class SilentSettings(MethodSettings):
    """A setting that nobody explains."""

    rate: float = Field(1.0, gt=0, le=1)


class Silent(SimpleCil):
    """Has a setting without a description."""

    name = "silent"
    settings_type = SilentSettings


class PermissiveSettings(MethodSettings):
    """Settings that swallow what they do not know."""

    model_config = ConfigDict(extra="ignore")


class Permissive(SimpleCil):
    """Accepts settings that do not exist."""

    name = "permissive"
    settings_type = PermissiveSettings


class CurtSettings(MethodSettings):
    """Refuses heads without a hint."""

    @field_validator("head", mode="before")
    @classmethod
    def _prototype(cls, head: object) -> object:
        if isinstance(head, dict) and head.get("kind") == "trained":
            raise ValueError("no")
        return head


class Curt(SimpleCil):
    """Refuses heads without saying which fit."""

    name = "curt"
    settings_type = CurtSettings
