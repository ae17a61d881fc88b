"""What the methods have in common that have a network of its own for every task, and a route that chooses one.

Shapes: T tasks, N tuned numbers, U units that a mask has bits for, B images, K classes so far, D features.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.kinds import AlignedAfterTraining, PrototypeAfterTraining
from clare.heads.subspaces import task_of_classes
from clare.heads.trained import TrainedSettings
from clare.methods._shared.autoencoder import AutoencoderSettings, ByAutoencoder
from clare.methods._shared.routes import RULES, ByBareMeans, ByDistance, Route
from clare.methods._shared.tuned import FlatMethod, TunedSettings
from clare.methods.base import bare_features
from clare.methods.protocols import Diagnoses, GrowsFeatures, HasStructure, InfersTask, IsToldTask, PassesSeveralTimes
from clare.seeds import generator_at
from clare.settings import Acts, Settings
from clare.steps import Adam, Choosing, Collect, Group, Learning, Optimizer, Phase, TaskInfo, answered

Name = Literal[
    "max-logit", "msp", "entropy", "energy", "one-shot", "mahalanobis", "bare-prototype", "autoencoder", "told"
]


class RouteSettings(Settings):
    """How the task of an image is inferred."""

    acts: ClassVar[Acts] = {"autoencoder": {"by": ("autoencoder",)}}

    by: Name = Field(
        "max-logit",
        description="The largest logit, the largest chance, the least entropy or the largest energy among a task's own "
        "classes; SupSup's gradient; the least Mahalanobis distance; the nearest class mean or the best autoencoder "
        "of bare features; or told: no inference, so that only figures with the task given count.",
    )
    autoencoder: AutoencoderSettings = Field(AutoencoderSettings(), description="The autoencoder of each task.")


def make_route(settings: RouteSettings, num_features: int) -> Route:
    """Return the route that the settings ask for."""
    match settings.by:
        case "mahalanobis":
            return ByDistance(num_features)
        case "bare-prototype":
            return ByBareMeans(num_features)
        case "autoencoder":
            return ByAutoencoder(num_features, settings.autoencoder)
    return Route(RULES[settings.by])


class NetworksSettings(TunedSettings):
    """The recipe, the route, and a head whose rows are looked at in the features of their own task's network alone."""

    acts: ClassVar[Acts] = {**TunedSettings.acts, "momentum": {"optimize": ("sgd",)}}

    head: PrototypeAfterTraining | TrainedSettings | AlignedAfterTraining = Field(
        PrototypeAfterTraining(), description="The classifier."
    )
    route: RouteSettings = Field(RouteSettings(), description="How the task of an image is inferred.")
    optimize: Literal["sgd", "adam"] = Field("sgd", description="What takes the steps.")

    @property
    def stepper(self) -> Optimizer:
        """SGD or Adam with the schedule of the settings."""
        if self.optimize == "sgd":
            return self.optimizer
        return Adam(self.learning_rate, weight_decay=self.weight_decay, schedule=self.schedule)


class NetworksMethod(FlatMethod, GrowsFeatures, PassesSeveralTimes, HasStructure, InfersTask, IsToldTask):
    """A method whose features are those of all tasks' networks side by side; each classifies its own classes."""

    family = "masks"
    settings: NetworksSettings

    def __init__(self, backbone: Backbone, settings: NetworksSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.route = make_route(settings.route, self.head.num_features)

    def phase(self, name: str, epochs: int, groups: list[Group], **more: Any) -> Phase:
        """Return a phase of the method's recipe, with the steps that the settings ask for."""
        return super().phase(name, epochs, groups, **{"optimizer": self.settings.stepper, **more})

    @abstractmethod
    def train_network(self, task: TaskInfo) -> Learning:
        """Train the network of a task with its rows, and keep it behind those of the tasks before."""

    @property
    @abstractmethod
    def num_networks(self) -> int:
        """How many networks are kept."""

    @abstractmethod
    def network(self, task: int) -> Tensor:
        """Return the numbers of a task's network, shape (N,)."""

    def learn(self, task: TaskInfo) -> Learning:
        """Train a network, keep what the route needs, then finish the rows with the network's own features."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        yield from self.route.look(task, self.bare)
        yield from self.train_network(task)
        found = yield Collect("features", self.newest_features)
        yield from self.route.learn(task, found)
        yield from answered(self.head.finish(len(task.classes)), found)

    def running(self) -> Tensor:
        """Return the numbers of the network that is being trained: all as they are."""
        return self.values

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy over the task's classes, under the network that is being trained."""
        return self.head.block_loss(self.features_of(images, self.running()), labels)

    def bare(self, images: Tensor) -> Tensor:
        """Return the features of the bare backbone."""
        return bare_features(self, images)

    def newest_features(self, images: Tensor) -> Tensor:
        """Return the features under the last network that is kept."""
        return self.features_at(images, self.network(self.num_networks - 1))

    def features(self, images: Tensor) -> Tensor:
        """Return the features of all networks side by side, before them those of the bare backbone for some routes."""
        return self.later_parts(images, 0)

    def later_parts(self, images: Tensor, first: int) -> Tensor:
        """Return the parts from this one on, side by side."""
        num_bare = int(self.route.reads_bare)
        parts = [self.bare(images)] if first < num_bare else []
        networks = range(max(first - num_bare, 0), self.num_networks)
        return torch.cat([*parts, *(self.features_at(images, self.network(task)) for task in networks)], 1)

    @property
    def features_version(self) -> int | None:
        """Nothing is fixed until the first task is learnt."""
        return 0 if self.tasks else None

    @property
    def num_parts(self) -> int:
        """One for each network, and one for the bare backbone where the route reads it."""
        return self.num_networks + int(self.route.reads_bare)

    @property
    def num_passes(self) -> int:
        """One for each part."""
        return self.num_parts

    @property
    def is_told_task(self) -> bool:
        """Whether the route asks for the task."""
        return self.settings.route.by == "told"

    def answers(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the classes, each by its own network, and how likely each task is."""
        tasks = task_of_classes([len(task) for task in self.tasks], features.device)
        own = tasks == torch.arange(len(self.tasks), device=tasks.device)[:, None]
        with torch.autocast(features.device.type, enabled=False):
            parts = features.float().view(len(features), self.num_parts, self.head.num_features)
            networks = parts[:, int(self.route.reads_bare) :]
            logits = torch.stack([self.head.logits(part) for part in networks.unbind(1)], 1)
            scores = self.route.scores(parts, self.head.scale * logits, own)
        return torch.where(own, logits, 0).sum(1), scores

    def classify(self, features: Tensor) -> Tensor:
        """Return logits over all classes; those of tasks that the route leaves out are below all others."""
        logits, scores = self.answers(features)
        if self.settings.route.by in ("told", "max-logit"):
            return logits
        tasks = task_of_classes([len(task) for task in self.tasks], features.device)
        # No more than that, so that their order among themselves survives rounding.
        below = logits.amax(1, keepdim=True) - logits.amin(1, keepdim=True) + 1
        return torch.where(tasks == scores.argmax(1)[:, None], logits, logits - below)

    def inferred_tasks(self, features: Tensor) -> Tensor:
        """Return the task that the route chooses."""
        return self.answers(features)[1].argmax(1)

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for what the route keeps."""
        self.route.resize(len(self.tasks), len(self.classes))


class MaskedSettings(NetworksSettings):
    """What a network is outside its mask."""

    outside: Literal["start", "zero"] = Field(
        "start", description="What a number outside a task's mask is in its network: as it was at the start, or zero."
    )


class MaskedMethod(NetworksMethod, Diagnoses):
    """A method whose networks are masks on numbers that all tasks share; what a mask holds never changes again.

    Whatever is in no matrix, such as biases, is in every mask, and so trained with the first task alone.
    """

    masks: Tensor
    outside: Tensor

    def __init__(
        self, backbone: Backbone, settings: NetworksSettings, seed: int, outside: Literal["start", "zero"] = "zero"
    ) -> None:
        super().__init__(backbone, settings, seed)
        starts = outside == "start"
        begin = self.values.detach().clone() if starts else self.values.new_zeros(())
        # Weights of a backbone can be read off it again.
        self.register_buffer("outside", begin, persistent=starts and settings.tunes == "adapter")
        self.register_buffer("masks", torch.zeros(0, len(self.values), dtype=torch.bool))

    def train_network(self, task: TaskInfo) -> Learning:
        """Train a network inside a mask, and keep the mask."""
        mask = yield from self.find_mask(task)
        self.masks = torch.cat([self.masks, mask[None]])

    @abstractmethod
    def find_mask(self, task: TaskInfo) -> Choosing:
        """Train the task's network, and return its mask, shape (U,)."""

    @property
    def free(self) -> Tensor:
        """Mark the numbers that no task's network has, shape (N,)."""
        return ~self.spread(self.masks.any(0))

    def spread(self, mask_U: Tensor) -> Tensor:
        """Return which numbers a mask holds, shape (N,): every unit is one, unless a method says otherwise."""
        return mask_U

    def draw_zeros(self, settings: MaskedSettings) -> None:
        """Draw what is zero at first of an adapter's matrices, of which no mask would learn anything."""
        if settings.tunes == "adapter":
            values = self.drawn(generator_at(self.seed, "values")).to(self.values)
            self.values.data = torch.where(self.values == 0, values, self.values)
            self.outside.copy_(self.values if settings.outside == "start" else self.outside)

    def drawn(self, generator: torch.Generator) -> Tensor:
        """Draw matrices Kaiming-uniform with a = sqrt(5), beside zeros for all else."""
        shapes = self.tuner.shapes.values()
        draws = [(2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(shape[-1]) for shape in shapes]
        return torch.cat([is_matrix * draw.flatten() for is_matrix, draw in zip(self.is_matrix, draws, strict=True)])

    @property
    def num_networks(self) -> int:
        """One for each mask."""
        return len(self.masks)

    def network(self, task: int) -> Tensor:
        """Return the numbers inside a task's mask, and what stands in for those outside."""
        return torch.where(self.spread(self.masks[task]), self.values, self.outside)

    def diagnosis(self) -> dict[str, Any]:
        """Return the share of all numbers that some task's network has."""
        return {"share_used": 1 - float(self.free.double().mean())}

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for the masks."""
        super().rebuild(structure)
        self.masks = self.masks.new_zeros(len(self.tasks), self.masks.shape[1])


def passing(value: Tensor, way: Tensor) -> Tensor:
    """Return a value that gradients take for another one: the straight-through estimator."""
    return value.detach() + (way - way.detach())
