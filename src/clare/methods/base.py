"""What every method is: a frozen backbone, what is tuned on it, a head, and a way to learn a task."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.looks import looks_at
from clare.backbones.stages import num_read, read
from clare.backbones.vit import Backbone
from clare.errors import ModelError, SettingsError
from clare.heads.head import Head, HeadSettings
from clare.heads.make import make_head
from clare.registry import ClassRegistry
from clare.seeds import generator_at
from clare.settings import Settings
from clare.steps import Learning, TaskInfo

FACTORS = tuple(2.0**power for power in range(-4, 5))
"""A logarithmic grid around a preset's value."""


class MethodSettings(Settings):
    """Settings that every method has."""

    head: HeadSettings = Field(HeadSettings(), description="The classifier.")


@dataclass(frozen=True)
class Capacity:
    """How many coordinates there are, how many are free, and how many the last task claimed."""

    num_coordinates: int
    num_free: int
    num_claimed: int


@dataclass(frozen=True)
class Snapshot:
    """Everything a method has learnt: structure as JSON values, the rest as tensors."""

    structure: dict[str, Any]
    tensors: dict[str, Tensor]


class Method(nn.Module, ABC):
    """A method of class-incremental learning; it owns no loop and no data."""

    name: ClassVar[str]
    summary: ClassVar[str]
    family: ClassVar[str] = "others"
    """The heading under which `clare methods` lists the method."""
    tunable: ClassVar[dict[str, tuple[Any, ...]]] = {"learning_rate": FACTORS}
    """What `clare tune` tries for a setting: numbers are factors on the preset's value, all else is a value itself."""
    tiny: ClassVar[dict[str, Any]] = {}
    """Settings with which `clare check-method` learns tasks of two classes in a second."""
    settings_type: ClassVar[type[MethodSettings]] = MethodSettings
    fixed_shapes: ClassVar[bool] = False
    """Whether all tensors of loss and features keep place and shape over tasks, so that steps are recorded once."""
    features_grow: ClassVar[bool] = False
    """Whether features are an exception to that, and only training is recorded."""
    merges_tasks: ClassVar[bool] = False
    """Whether the method learns all classes of a stream as one task."""
    features_are_fixed: ClassVar[bool] = False
    """Whether `features` is `fixed_features`, so that evaluation looks at every image once."""
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
        self.num_features = num_read(backbone.vit, settings.head.read_blocks, settings.head.read_patches)
        self.head: Head = make_head(self.num_features, settings.head, seed)
        self.tasks: list[tuple[str, ...]] = []

    @property
    def classes(self) -> list[str]:
        """Names of all classes learnt so far, in the order of the logits."""
        return [name for task in self.tasks for name in task]

    @abstractmethod
    def learn(self, task: TaskInfo) -> Learning:
        """Yield the steps of learning one task."""

    def prepare(self, num_tasks: int | None, largest_task: int) -> None:
        """Make room for the tasks that are to come; a method that must know their number says so when it is not."""
        self.head.reserve(largest_task)

    def bare_features(self, images: Tensor) -> Tensor:
        """Return the features of the frozen backbone alone, as the head reads them, shape (B, D)."""
        head = self.settings.head
        # Training meets an image often, each time augmented anew: there one look is enough.
        looks = [images] if self.training else looks_at(images, head.read_looks)
        parts = [read(self.backbone, look, head.read_blocks, head.read_patches, head.read_centre) for look in looks]
        return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)

    @property
    def fixed_version(self) -> int | None:
        """Return the version of `fixed_features`, which evaluation keeps until it changes; none keeps nothing."""
        return None

    def fixed_features(self, images: Tensor) -> Tensor:
        """Return what no later task changes about these images, such as the query of a prompt, shape (B, Q)."""
        return self.bare_features(images)

    @property
    def num_fixed_parts(self) -> int:
        """Return how many parts `fixed_features` has side by side; a task may add parts, and changes none."""
        return 1

    def later_parts(self, images: Tensor, first: int) -> Tensor:
        """Return the parts of `fixed_features` from this one on; a method whose parts grow in number has some."""
        raise NotImplementedError(f"{self.name} adds parts to its fixed features, but does not say what they are")

    def features(self, images: Tensor, fixed: Tensor | None = None) -> Tensor:
        """Return the features that the head classifies, shape (B, D); `fixed` spares their fixed part."""
        return self.fixed_features(images) if fixed is None else fixed

    def classify(self, features: Tensor) -> Tensor:
        """Return logits over every class learnt so far, shape (B, K)."""
        return self.head.logits(features)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits over every class learnt so far, shape (B, K)."""
        return self.classify(self.features(images))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the current task's classes."""
        return self.head.block_loss(self.features(images), labels)

    @property
    def room(self) -> int:
        """Return a number that changes when a loss of fixed shapes is given more room, so that it is recorded anew."""
        return 0

    @property
    def passes_per_image(self) -> int:
        """Return how often an image goes through the backbone to be classified."""
        return self.passes_per_look * self.settings.head.read_looks

    @property
    def passes_per_look(self) -> int:
        """Return how often an image goes through the backbone to be looked at once."""
        return 1

    def capacity(self) -> Capacity | None:
        """Return the state of the coordinate pool, if the method has one."""
        return None

    def diagnosis(self) -> dict[str, Any]:
        """Return what the record keeps about the task just learnt, as JSON values; `learn` finds it out."""
        return {}

    def train(self, mode: bool = True) -> "Method":
        """Switch the tuned parts to training; the frozen backbone always evaluates."""
        super().train(mode)
        self.backbone.eval()
        return self

    def generator(self, task: TaskInfo, purpose: str) -> torch.Generator:
        """Return the random source for one purpose within one task."""
        return generator_at(self.seed, task.index, purpose)

    def check_new(self, classes: tuple[str, ...]) -> None:
        """Refuse a task without classes, with a class twice, or with a class learnt before."""
        if not classes:
            raise ModelError("the task has no classes; give it at least one class with images")
        repeated = sorted({name for name in classes if classes.count(name) > 1})
        if repeated:
            raise ModelError(f"the task names the class '{repeated[0]}' twice; name every class once")
        known = [name for name in classes if name in set(self.classes)]
        if known:
            raise ModelError(
                f"the class '{known[0]}' was learnt before; "
                "leave it out of this task or give the new class another name"
            )

    def structure(self) -> dict[str, Any]:
        """Return what must be known to make room for the tensors."""
        return {"tasks": [list(task) for task in self.tasks], "block_size": len(self.head.block)}

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for the tensors that a snapshot with this structure holds."""
        self.tasks = [tuple(task) for task in structure["tasks"]]
        self.head.resize(len(self.classes), int(structure["block_size"]))

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors but those of the frozen backbone."""
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("backbone.")}

    def snapshot(self) -> Snapshot:
        """Return a copy of everything learnt."""
        return Snapshot(self.structure(), {name: tensor.clone() for name, tensor in self.tensors().items()})

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot."""
        self.rebuild(snapshot.structure)
        own = self.tensors()
        different = sorted(own.keys() ^ snapshot.tensors.keys()) or [
            name for name, tensor in own.items() if tensor.shape != snapshot.tensors[name].shape
        ]
        if different:
            raise ModelError(
                f"the saved state does not fit the method: {', '.join(different)}; use the settings it was saved with"
            )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(snapshot.tensors[name])


METHODS: ClassRegistry[Method] = ClassRegistry("method", Method, "clare.methods")


def register(method: type[Method]) -> type[Method]:
    """Add a method to the registry under its own name."""
    METHODS.add(method.name, method)
    return method
