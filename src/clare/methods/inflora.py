"""InfLoRA: each task trains the up-projection of a low-rank pair whose down-projection earlier tasks cannot feel.

Liang, Li: "InfLoRA: Interference-Free Low-Rank Adaptation for Continual Learning" (CVPR 2024).
Shapes: L blocks, D width, R rank.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.errors import ModelError, SettingsError
from clare.heads.trained import TrainedSettings
from clare.methods._shared.dual_gpm import Basis, InputMemory
from clare.methods._shared.low_rank import LowRankMethod
from clare.methods._shared.recipe import EpochSettings
from clare.methods.base import MethodSettings, register
from clare.methods.protocols import HasStructure, PlansTasks
from clare.steps import Adam, Group, Learning, Solve, TaskInfo
from clare.tuners.lora import QkvLora


class InfLoraSettings(MethodSettings, EpochSettings):
    """The paper's hyper-parameters on CIFAR-100."""

    defaults: ClassVar[Any] = {"head": TrainedSettings(form="linear"), "batch_size": 128, "learning_rate": 5e-4}
    rank: int = Field(10, ge=1, le=4096, description="Rank of a task's update of a key or value projection.")
    threshold: float = Field(
        0.95, gt=0, lt=1, description="Share of the first task's inputs that is kept free of others."
    )
    last_threshold: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share that the threshold rises to in equal steps, and would reach after all tasks.",
    )
    update: Literal["summed", "separate"] = Field(
        "summed",
        description="Add an update to the weight before the product with the inputs, or take its own product with "
        "them: in half precision a sum rounds the update to the precision of the weight.",
    )
    num_tasks: int = Field(
        0, ge=0, le=1_000_000, description="Tasks over which the threshold rises; 0 means as many as the stream has."
    )


@register
class InfLora(LowRankMethod, PlansTasks, HasStructure):
    """Low-rank updates of keys and values, each outside the inputs of earlier tasks, merged after every task."""

    name = "inflora"
    summary = "trains low-rank updates of keys and values outside the input space of earlier tasks"
    family = "LoRA"
    tiny: ClassVar[dict[str, Any]] = {"rank": 4, "num_tasks": 3}
    fixed_shapes = True
    settings: InfLoraSettings

    def __init__(self, backbone: Backbone, settings: InfLoraSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        is_separate = settings.update == "separate"
        self.lora = QkvLora(backbone.vit, settings.rank, ("k", "v"), shared_down=True, is_separate=is_separate)
        self.register_buffer("merged", self.lora.product())
        self.memory = InputMemory(len(self.lora.down), self.lora.down.shape[-1])
        self.num_tasks = settings.num_tasks

    def prepare(self, num_tasks: int | None, largest_task: int) -> None:
        """Learn how many tasks the threshold rises over."""
        if self.num_tasks and num_tasks and num_tasks > self.num_tasks:
            raise SettingsError(
                f"`method.num_tasks` is {self.num_tasks}, but the stream has {num_tasks} tasks; "
                f"set it to {num_tasks} or more, or to 0"
            )
        self.num_tasks = self.num_tasks or num_tasks or 0
        self._check_num_tasks(0)

    def _check_num_tasks(self, index: int) -> None:
        """Refuse a task when the number of tasks is unknown or used up."""
        if not self.num_tasks:
            raise SettingsError(
                "inflora's threshold depends on the number of tasks, and nothing tells it; set `method.num_tasks`"
            )
        if index >= self.num_tasks:
            raise ModelError(
                f"task {index + 1} came, but `method.num_tasks` is {self.num_tasks}; "
                "start again with a larger number, since the threshold depends on it"
            )

    def learn(self, task: TaskInfo) -> Learning:
        """Find free directions, train the update along them, merge it, and remember the task's inputs."""
        settings, index = self.settings, len(self.tasks)
        self._check_num_tasks(index)
        self.head.open_block(len(task.classes), task.generator("rows"))
        # Sums, not means: directions and shares do not depend on a factor.
        before = yield self.input_moments("inputs before")
        solved = yield Solve("directions", lambda: {"down": self._free_directions(before["moments"])})
        self.lora.down.copy_(solved["down"])
        optimizer = Adam(settings.learning_rate, schedule="quarter-cosine")
        groups = [Group(self.lora.up), *self.head.groups()]
        yield self.phase("train", settings.epochs, groups, optimizer=optimizer)
        self.merge()
        after = yield self.input_moments("inputs after")
        threshold = threshold_of(index, self.num_tasks, settings.threshold, settings.last_threshold)
        self.memory.load(
            (yield Solve("memory", lambda: self.memory.after(after["moments"], threshold, is_first=index == 0)))
        )
        yield from self.head.finish(len(task.classes))

    def _free_directions(self, moments: Tensor) -> Tensor:
        """Return every block's down-projection, shape (L, 1, R, D)."""
        bases, rank = self.memory.bases(), self.settings.rank
        found = [down_of(moment, basis, rank) for moment, basis in zip(moments, bases, strict=True)]
        return torch.stack(found)[:, None].to(self.lora.down)

    def structure(self) -> dict[str, Any]:
        """Return the number of tasks and the sizes of the memory."""
        return {"num_tasks": self.num_tasks, "memory": self.memory.structure()}

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for the memory."""
        self.num_tasks = int(structure["num_tasks"])
        self.memory.resize(**structure["memory"])


def threshold_of(index: int, num_tasks: int, first: float, last: float) -> float:
    """Return the share of the inputs that the memory holds after a task, counted from 0."""
    return first + (last - first) * index / num_tasks


def down_of(moment: Tensor, basis: Basis, rank: int) -> Tensor:
    """Return the leading directions of the inputs outside what earlier tasks used, as rows of length 1 / sqrt(3)."""
    left = torch.linalg.svd(basis.free_part(moment), full_matrices=False)[0]
    # Where fewer free directions than rows are left, the other singular vectors are arbitrary: the free part of those
    # is nothing.
    return basis.free_part(left[:, :rank]).T / math.sqrt(3)
