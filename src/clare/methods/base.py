"""What every method is: a frozen backbone, what is tuned on it, a head, and a way to learn a task."""

from abc import ABC, abstractmethod
from inspect import get_annotations
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from clare.backbones.features import FeatureSettings
from clare.backbones.vit import Backbone
from clare.errors import ModelError
from clare.heads.head import Head, HeadSettings
from clare.heads.kinds import AnyHead, PrototypeAfterTraining
from clare.methods.mistakes import check_members
from clare.methods.protocols import PassesSeveralTimes, PlansTasks
from clare.registry import ClassRegistry
from clare.settings import Settings
from clare.steps import Learning, TaskInfo

USUAL = FeatureSettings()
"""What a backbone ends with; made once, since a compiled program makes no settings."""


class HeadOnlySettings(Settings):
    """Settings of every method; the kinds of heads that it can have are those in the annotation of its `head`."""

    head: HeadSettings

    @property
    def reading(self) -> FeatureSettings:
        """What of the backbone is read, by a method that makes features of its own no more than usual."""
        return USUAL


class ReadingSettings(HeadOnlySettings):
    """Settings of a method whose features are read from the backbone."""

    features: FeatureSettings = Field(FeatureSettings(), description="What of the backbone is read.")

    @property
    def reading(self) -> FeatureSettings:
        """What of the backbone is read."""
        return self.features


class MethodSettings(ReadingSettings):
    """Settings that most methods have: features read from the backbone, and a head of any kind."""

    head: AnyHead = Field(PrototypeAfterTraining(), description="The classifier.")


class Method(nn.Module, ABC):
    """A method of class-incremental learning; it owns no loop and no data, and what few methods need is a protocol."""

    name: ClassVar[str]
    """The method in tables, folders and on the command line."""
    summary: ClassVar[str]
    """What it does, in half a sentence."""
    family: ClassVar[str] = "others"
    """The heading under which `clare methods` lists it."""
    settings_type: ClassVar[type[HeadOnlySettings]] = MethodSettings
    """Its settings, each with a default, bounds and a sentence: the class that `settings` is annotated with."""
    fixed_shapes: ClassVar[bool] = False
    """Whether all tensors that loss and features read keep place and shape over tasks, so that steps are recorded."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take the type of the settings from their annotation."""
        super().__init_subclass__(**kwargs)
        kind = get_annotations(cls).get("settings")
        if isinstance(kind, type) and "settings_type" not in vars(cls):
            cls.settings_type = kind

    def __init__(self, backbone: Backbone, settings: HeadOnlySettings, seed: int) -> None:
        super().__init__()
        self.backbone = backbone.vit
        self.settings = settings
        self.seed = seed
        self.head: Head = settings.head.make(sum(settings.reading.part_sizes(backbone.vit)), seed)
        self.tasks: list[tuple[str, ...]] = []

    @property
    def classes(self) -> list[str]:
        """Names of all classes learnt so far, in the order of the logits."""
        return [name for task in self.tasks for name in task]

    @abstractmethod
    def learn(self, task: TaskInfo) -> Learning:
        """Yield the steps of learning one task."""

    def features(self, images: Tensor) -> Tensor:
        """Return the features that the head classifies, shape (B, D): those of the bare backbone."""
        return bare_features(self, images)

    def classify(self, features: Tensor) -> Tensor:
        """Return logits over every class learnt so far, shape (B, K)."""
        return self.head.logits(fitting(self, features))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the current task's classes."""
        return self.head.block_loss(fitting(self, self.features(images)), labels)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits over every class learnt so far, shape (B, K)."""
        return self.classify(self.features(images))

    def train(self, mode: bool = True) -> "Method":
        """Switch the tuned parts to training; the frozen backbone always evaluates."""
        super().train(mode)
        self.backbone.eval()
        return self


def fitting(method: Method, features: Tensor) -> Tensor:
    """Return features if they are as wide as the method's head."""
    width = method.head.num_features
    if features.dim() != 2 or features.shape[1] != width:
        raise ModelError(
            f"the features of {method.name} have the shape {tuple(features.shape)}, but its head takes {width} numbers "
            f"of each image; return them in the shape (images, {width}), or make another head in `__init__`"
        )
    return features


def bare_features(method: Method, images: Tensor) -> Tensor:
    """Return what a method's head reads of its backbone as it stands, shape (B, D)."""
    reading = method.settings.reading
    # Training meets an image often, each time augmented anew: there one view is enough.
    return reading.read(method.backbone, images, 1 if method.training else reading.views)


def prepare(method: Method, num_tasks: int | None, largest_task: int) -> None:
    """Make room for the tasks that are to come, as far as their number and size are known."""
    method.head.reserve(largest_task)
    if isinstance(method, PlansTasks):
        method.prepare(num_tasks, largest_task)


def passes_per_image(method: Method) -> int:
    """Return how often an image goes through the backbone to be classified."""
    per_view = method.num_passes if isinstance(method, PassesSeveralTimes) else 1
    return per_view * method.settings.reading.views


METHODS: ClassRegistry[Method] = ClassRegistry("method", Method, "clare.methods", check_members)


def register(method: type[Method]) -> type[Method]:
    """Add a method to the registry under its own name."""
    METHODS.add(method.name, method)
    return method
