"""What the methods have in common that keep pictures and learn from them again beside those of a task.

Shapes: Q places, N images of a task, M pictures to choose, D features.
"""

from abc import abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone, num_channels
from clare.errors import SettingsError
from clare.growth import Growing
from clare.heads.contrast import Contrast
from clare.heads.kinds import AnyHead
from clare.heads.trained import TrainedSettings
from clare.methods._shared.recipe import ContrastMethod
from clare.methods._shared.tuned import TunedMethod, TunedSettings
from clare.methods.protocols import KeepsPictures
from clare.settings import Settings
from clare.steps import (
    Collect,
    Correction,
    Group,
    Learning,
    Phase,
    Pictures,
    Replay,
    Result,
    Solve,
    Step,
    Take,
    TaskInfo,
)

NONE = -1
"""The label of a place without a picture."""


class MemorySettings(Settings):
    """How many pictures are kept, and which."""

    pictures: int = Field(2000, ge=1, le=1_000_000, description="Pictures kept at the most, of all classes together.")
    choice: Literal["reservoir", "balanced", "herding"] = Field(
        "reservoir",
        description="Each picture met so far with the same chance; equally many of each class at random; or equally "
        "many whose mean feature is nearest to that of their class.",
    )


class Memory(nn.Module, Growing):
    """Kept pictures as raw pixels side by side; classes by their place among all, and room for as many as allowed."""

    grows = ("pixels",)
    pixels: Tensor
    sizes: Tensor
    labels: Tensor
    num_met: Tensor

    def __init__(self, settings: MemorySettings, channels: int) -> None:
        super().__init__()
        self.settings, self.channels = settings, channels
        self.register_buffer("pixels", torch.zeros(0, dtype=torch.uint8))
        self.register_buffer("sizes", torch.zeros(settings.pictures, 2, dtype=torch.int64))
        self.register_buffer("labels", torch.full((settings.pictures,), NONE))
        self.register_buffer("num_met", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        """Return how many pictures are kept."""
        return int((self.labels != NONE).sum())

    @property
    def pictures(self) -> Pictures:
        """All kept pictures."""
        return Pictures(self.pixels, self.sizes[: len(self)], self.channels)

    def clear(self) -> None:
        """Forget all pictures."""
        self.pixels = self.pixels.new_zeros(0)
        self.sizes.zero_()
        self.labels.fill_(NONE)

    def share(self, num_classes: int) -> int:
        """Return how many pictures each of so many classes may have."""
        share = self.settings.pictures // num_classes
        if share == 0:
            raise SettingsError(
                f"`memory.pictures` is {self.settings.pictures}, too few for one of each of {num_classes} classes; "
                "raise it, or set `memory.choice` to reservoir"
            )
        return share

    def plan(self, num_images: int, num_classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return which kept pictures stay, and the order in which a task's images come to be chosen."""
        num_kept, size = len(self), self.settings.pictures
        if self.settings.choice == "reservoir":
            slots = reservoir(num_kept, int(self.num_met), num_images, size, generator)
            return slots[slots < num_kept], slots[slots >= num_kept] - num_kept
        stays = first_of_each(self.labels[:num_kept].cpu(), self.share(num_classes))
        return stays, torch.randperm(num_images, generator=generator)

    def update(self, stays: Tensor, taken: Result, first_class: int) -> None:
        """Keep some of the pictures, and put those taken from a task, whose classes begin here, behind them."""
        num_kept, areas = len(self), self.sizes.prod(1) * self.channels
        parts = torch.split(self.pixels, areas[:num_kept].tolist())
        self.pixels = torch.cat([*(parts[place] for place in stays.tolist()), taken["pixels"].to(self.pixels)])
        stays = stays.to(self.labels.device)
        for own, new in ((self.sizes, taken["sizes"]), (self.labels, first_class + taken["labels"])):
            rows = torch.cat([own[stays], new.to(own)])
            own.fill_(NONE if own is self.labels else 0)
            own[: len(rows)] = rows
        self.num_met += taken["count"].to(self.num_met)


def reservoir(num_kept: int, num_met: int, num_new: int, size: int, generator: torch.Generator) -> Tensor:
    """Return what is in the places after new images came in random order: kept ones, and behind them new ones.

    Image number s takes a random place of s, if that is one of those there are: all met so far are kept equally likely.
    """
    slots = list(range(num_kept))
    order = torch.randperm(num_new, generator=generator)
    among = torch.arange(num_met + 1, num_met + num_new + 1)
    drawn = (torch.rand(num_new, generator=generator, dtype=torch.float64) * among).long()
    for place, slot in zip((order + num_kept).tolist(), drawn.tolist(), strict=True):
        if len(slots) < size:
            slots.append(place)
        elif slot < size:
            slots[slot] = place
    return torch.tensor(slots, dtype=torch.int64).sort().values


def first_of_each(labels: Tensor, number: int) -> Tensor:
    """Return the places of the first so many images of each class, in order."""
    if not len(labels):
        return labels
    counts = F.one_hot(labels).cumsum(0).gather(1, labels[:, None])[:, 0]
    return (counts <= number).nonzero().squeeze(1)


def herd(units_ND: Tensor, number: int) -> Tensor:
    """Return images of a class in the order in which their mean comes nearest to that of all."""
    mean, total = units_ND.mean(0), torch.zeros_like(units_ND[0])
    is_chosen, chosen = torch.zeros(len(units_ND), dtype=torch.bool, device=units_ND.device), []
    for count in range(1, min(number, len(units_ND)) + 1):
        distances = (mean - (units_ND + total) / count).norm(dim=1)
        best = distances.masked_fill(is_chosen, torch.inf).argmin()
        is_chosen[best], total = True, total + units_ND[best]
        chosen.append(best)
    return torch.stack(chosen)


def herded(features_ND: Tensor, labels_N: Tensor, number: int) -> Tensor:
    """Return the places of so many images of each class, class by class, as they are herded on unit features."""
    units, places = F.normalize(features_ND.double(), dim=1), []
    for label in range(int(labels_N.max()) + 1):
        own = (labels_N == label).nonzero().squeeze(1)
        places.append(own[herd(units[own], number)])
    return torch.cat(places)


class ReplaySettings(TunedSettings):
    """The recipe, and the pictures that are kept."""

    head: AnyHead = Field(TrainedSettings(), description="The classifier.")
    memory: MemorySettings = Field(MemorySettings(), description="The pictures that are kept.")


class ReplayMethod(TunedMethod, ContrastMethod, KeepsPictures):
    """A method whose loss is over all classes so far, and which meets kept pictures of earlier ones again."""

    family = "replay"
    tiny: ClassVar[dict[str, Any]] = {"memory": {"pictures": 12}}
    settings: ReplaySettings

    def __init__(self, backbone: Backbone, settings: ReplaySettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.contrast = Contrast(self.head.row_size, "seen-trained")
        self.memory = Memory(settings.memory, num_channels(backbone.vit))

    @property
    def kept(self) -> tuple[Pictures, Tensor]:
        """The kept pictures, and their classes."""
        return self.memory.pictures, self.memory.labels[: len(self.memory)]

    def drop_pictures(self) -> None:
        """Forget all pictures."""
        self.memory.clear()

    def learn(self, task: TaskInfo) -> Learning:
        """Train with the kept pictures, choose which to keep of this task's, then finish the rows."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        self.contrast.take(self.head)
        yield from self.train_task(task)
        self.contrast.give_back(self.head)
        yield from self.remember(task)
        yield from self.head.finish(len(task.classes))

    def train_task(self, task: TaskInfo) -> Learning:
        """Train a task in one phase."""
        yield self.train_phase()

    def train_phase(self) -> Phase:
        """Return the phase that trains a task, beside kept pictures once there are any."""
        replay = self.replay()
        if replay is None:
            return self.phase("train", self.settings.epochs, self.groups())
        more = {"loss": self.replay_loss, "replay": replay, "correction": self.correction(len(replay.pools))}
        return self.phase("train", self.settings.epochs, self.groups(), **more)

    def replay(self) -> Replay | None:
        """Return what comes beside a task's images: nothing as long as no pictures are kept."""
        pictures, classes = self.kept
        return Replay(pictures, self.replay_labels(), self.pools(torch.arange(len(classes)))) if len(classes) else None

    @abstractmethod
    def pools(self, every: Tensor) -> tuple[Tensor, ...]:
        """Return places of kept pictures, one of each pool to come beside every image; without any, all are mixed."""

    def correction(self, num_pools: int) -> Correction | None:
        """Return what a step makes of its gradient beside those of the pictures of each pool."""
        return None

    def groups(self) -> list[Group]:
        """Return all that is trained: the tuned values and the rows of all classes so far."""
        return [Group(self.values), *self.head.groups(), *self.contrast.groups()]

    def replay_labels(self) -> Tensor:
        """Return where the class of each kept picture stands among the logits of a training step."""
        return len(self.head.block) + self.kept[1]

    def logits(self, images: Tensor) -> Tensor:
        """Return the scaled scores of the task's classes, and after them those of earlier classes."""
        return self.contrast.logits(self.head, self.features(images))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy over all classes so far."""
        return self.contrast.loss(self.head, self.features(images), labels)

    def replay_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of images with pictures beside them: their own cross-entropy unless a method says more."""
        return self.loss_at(0, images, labels)

    def loss_at(self, place: int, images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of the task's images, in the first place, or of the pictures of one pool."""
        return self.loss(images[:, place], labels[:, place])

    def remember(self, task: TaskInfo) -> Generator[Step, Result, Tensor]:
        """Choose which pictures are kept from now on, and return the places of those that stay."""
        memory, num_before = self.memory, len(self.classes)
        num_classes = num_before + len(task.classes)
        herds = memory.settings.choice == "herding"
        share = None if memory.settings.choice == "reservoir" else memory.share(num_classes)
        order = None
        if herds:
            found = yield Collect("herding features", self.features)
            chosen = yield Solve("herding", lambda: {"places": herded(found["values"], found["labels"], share or 0)})
            order = chosen["places"].cpu()

        def choose(labels: Tensor) -> Tensor:
            places = memory.plan(len(labels), num_classes, task.generator("memory"))[1] if order is None else order
            return places if share is None else places[first_of_each(labels[places], share)]

        taken = yield Take("pictures", choose)
        stays, _ = memory.plan(int(taken["count"]), num_classes, task.generator("memory"))
        memory.update(stays, taken, num_before)
        return stays
