"""What every method is: a frozen backbone, what is tuned on it, a head, and a way to learn a task."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.looks import looks_at
from clare.backbones.stages import num_read, read
from clare.backbones.vit import Backbone
from clare.errors import SettingsError
from clare.heads.head import Head, HeadSettings
from clare.heads.make import make_head
from clare.methods.protocols import PassesSeveralTimes, PlansTasks
from clare.registry import ClassRegistry
from clare.settings import Settings
from clare.steps import Learning, TaskInfo


class MethodSettings(Settings):
    """Settings that every method has."""

    head: HeadSettings = Field(HeadSettings(), description="The classifier.")


class Method(nn.Module, ABC):
    """A method of class-incremental learning; it owns no loop and no data, and what few methods need is a protocol."""

    name: ClassVar[str]
    """The method in tables, folders and on the command line."""
    summary: ClassVar[str]
    """What it does, in half a sentence."""
    family: ClassVar[str] = "others"
    """The heading under which `clare methods` lists it."""
    settings_type: ClassVar[type[MethodSettings]] = MethodSettings
    """Its settings, each with a default, bounds and a sentence."""
    fixed_shapes: ClassVar[bool] = False
    """Whether all tensors that loss and features read keep place and shape over tasks, so that steps are recorded."""
    reads_blocks: ClassVar[bool] = True
    """Whether the head may read more of the backbone than its usual feature."""

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int) -> None:
        super().__init__()
        self.backbone = backbone.vit
        self.settings = settings
        self.seed = seed
        if not (self.reads_blocks or settings.head.reads_usual):
            raise SettingsError(
                f"the method {self.name} makes features of its own, so the head cannot read several blocks, patches or "
                "looks; set `method.head.read_blocks` and `method.head.read_looks` to 1, "
                "`method.head.read_patches` and `method.head.read_centre` to false"
            )
        num_features = num_read(backbone.vit, settings.head.read_blocks, settings.head.read_patches)
        self.head: Head = make_head(num_features, settings.head, seed)
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
        return self.head.logits(features)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the current task's classes."""
        return self.head.block_loss(self.features(images), labels)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits over every class learnt so far, shape (B, K)."""
        return self.classify(self.features(images))

    def train(self, mode: bool = True) -> "Method":
        """Switch the tuned parts to training; the frozen backbone always evaluates."""
        super().train(mode)
        self.backbone.eval()
        return self


def bare_features(method: Method, images: Tensor) -> Tensor:
    """Return what a method's head reads of its backbone as it stands, shape (B, D)."""
    head = method.settings.head
    # Training meets an image often, each time augmented anew: there one look is enough.
    looks = [images] if method.training else looks_at(images, head.read_looks)
    parts = [read(method.backbone, look, head.read_blocks, head.read_patches, head.read_centre) for look in looks]
    return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)


def prepare(method: Method, num_tasks: int | None, largest_task: int) -> None:
    """Make room for the tasks that are to come, as far as their number and size are known."""
    method.head.reserve(largest_task)
    if isinstance(method, PlansTasks):
        method.prepare(num_tasks, largest_task)


def passes_per_image(method: Method) -> int:
    """Return how often an image goes through the backbone to be classified."""
    per_look = method.num_passes if isinstance(method, PassesSeveralTimes) else 1
    return per_look * method.settings.head.read_looks


METHODS: ClassRegistry[Method] = ClassRegistry("method", Method, "clare.methods")


def register(method: type[Method]) -> type[Method]:
    """Add a method to the registry under its own name."""
    METHODS.add(method.name, method)
    return method
