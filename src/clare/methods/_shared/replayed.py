"""What the methods have in common that keep pictures and learn from them again beside those of a task."""

from abc import abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone, num_channels
from clare.heads.contrast import Contrast
from clare.heads.kinds import AnyHead
from clare.heads.trained import TrainedSettings
from clare.methods._shared.memory import Memory, MemorySettings, first_of_each, herded
from clare.methods._shared.tuned import TunedMethod, TunedSettings
from clare.methods.protocols import GrowsRoom, HasTinySettings, KeepsPictures, PlansTasks
from clare.steps import Collect, Group, Learning, Phase, Pictures, Replay, Result, Solve, Step, Take, TaskInfo


class ReplaySettings(TunedSettings):
    """The recipe, and the pictures that are kept."""

    head: AnyHead = Field(TrainedSettings(), description="The classifier.")
    memory: MemorySettings = Field(MemorySettings(), description="The pictures that are kept.")


class ReplayMethod(TunedMethod, KeepsPictures, PlansTasks, GrowsRoom, HasTinySettings):
    """A method whose loss is over all classes so far, and which meets kept pictures of earlier ones again."""

    family = "replay"
    tiny: ClassVar[dict[str, Any]] = {"memory": {"pictures": 12}}
    settings: ReplaySettings

    def __init__(self, backbone: Backbone, settings: ReplaySettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.contrast = Contrast(self.head.row_size, "seen-trained")
        self.memory = Memory(settings.memory, num_channels(backbone.vit))

    def prepare(self, num_tasks: int | None, largest_task: int) -> None:
        """Make room for the rows of all tasks where their number is known."""
        self.contrast.reserve((num_tasks or 0) * largest_task)

    @property
    def room(self) -> int:
        """Return the room for earlier rows, which grows where their number is unknown."""
        return len(self.contrast.rows)

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
        yield self.train_phase()
        self.contrast.give_back(self.head)
        yield from self.remember(task)
        yield from self.head.finish(len(task.classes))

    @abstractmethod
    def train_phase(self) -> Phase:
        """Return the phase that trains a task."""

    def groups(self) -> list[Group]:
        """Return all that is trained: the tuned values and the rows of all classes so far."""
        return [Group(self.values), *self.head.groups(), *self.contrast.groups()]

    def replay(self, num_beside: int) -> Replay | None:
        """Return so many of all kept pictures beside every image, or all mixed among them, if there are any."""
        if not len(self.memory):
            return None
        every = torch.arange(len(self.memory))
        return Replay(self.memory.pictures, self.replay_labels(), (every,) * num_beside)

    def replay_labels(self) -> Tensor:
        """Return where the class of each kept picture stands among the logits of a training step."""
        return len(self.head.block) + self.kept[1]

    def logits(self, images: Tensor) -> Tensor:
        """Return the scaled scores of the task's classes, and after them those of earlier classes."""
        return self.contrast.logits(self.head, self.features(images))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy over all classes so far."""
        return self.contrast.loss(self.head, self.features(images), labels)

    def task_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of the task's images, without the pictures beside them."""
        return self.loss(images[:, 0], labels[:, 0])

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
