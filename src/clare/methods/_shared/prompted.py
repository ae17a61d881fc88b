"""What the methods that prompt a frozen backbone share: the query, the choice of prompts, the linear head, the recipe.

Shapes: B images, S slots or keys, T chosen slots of an image, D features.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.families import Model, family_of
from clare.backbones.vit import Backbone
from clare.errors import ModelError, SettingsError
from clare.heads.kinds import AnyHead
from clare.heads.trained import TrainedSettings
from clare.methods._shared.collected import Collected
from clare.methods._shared.recipe import EpochSettings, RecipeMethod
from clare.methods.base import bare_features
from clare.methods.protocols import CachesQueries, HasStructure, PassesSeveralTimes, PlansTasks
from clare.settings import Acts
from clare.steps import Adam, Collect, Group, Learning, Loss, Phase, TaskInfo

Start = Literal["small", "wide"]
RANGES: dict[Start, tuple[float, float]] = {"small": (0.0, 0.01), "wide": (-1.0, 1.0)}


class PromptedSettings(EpochSettings):
    """The head and the recipe of a task's training."""

    defaults: ClassVar[Any] = {"epochs": 5, "batch_size": 128, "learning_rate": 0.015}
    acts: ClassVar[Acts] = {"initial_rows": {"head.form": ("linear",)}}

    head: AnyHead = Field(TrainedSettings(form="linear"), description="The classifier.")
    initial_rows: Literal["zero", "drawn"] = Field(
        "zero", description="Rows of a new task start at zero or are drawn; cosine rows are always drawn."
    )
    schedule: Literal["constant", "cosine", "quarter-cosine"] = Field(
        "constant", description="How the learning rate goes from epoch to epoch."
    )
    clip_norm: float = Field(
        1.0, ge=0, le=1e6, description="Largest norm of the gradient of all that is trained; 0 never shortens it."
    )

    @property
    def optimizer(self) -> Adam:
        """Adam with the schedule of the settings."""
        return Adam(self.learning_rate, schedule=self.schedule)


class KeyedSettings(PromptedSettings):
    """How keys learn by which prompts are found, where they start, and whether a batch agrees on what it finds."""

    pull_weight: float = Field(1.0, ge=0, le=1000, description="Weight of the pull of an image's keys to its query.")
    key_queries: Literal["augmented", "plain"] = Field(
        "augmented",
        description="Queries that keys learn from: of training's augmented images (official), or of plain ones.",
    )
    prompt_start: Start = Field(
        "small", description="Prompts and keys start uniform in 0..0.01 (official) or in -1..1 (PyTorch port)."
    )
    vote_at_test: bool = Field(
        False,
        description="At test, all images of a batch get the prompts that most of them choose; "
        "answers then depend on which images share a batch.",
    )


class PromptedMethod(RecipeMethod, CachesQueries, PassesSeveralTimes):
    """A method whose prompts depend on a query: the image's feature in the bare backbone."""

    # Pools have all their slots from the start; the slot of the current task is a tensor.
    fixed_shapes = True
    settings: PromptedSettings

    def queries(self, images: Tensor) -> Tensor:
        """Return the features of the bare backbone, shape (B, D)."""
        return bare_features(self, images)

    def features(self, images: Tensor) -> Tensor:
        """Return the features under the prompts that fit each image's query."""
        return self.features_from(images, self.queries(images))

    def open_rows(self, task: TaskInfo) -> None:
        """Make rows for a task's classes."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        # A cosine has no direction at zero.
        if self.settings.initial_rows == "zero" and self.settings.head.row_form == "linear":
            self.head.block.data.zero_()

    def phase(self, name: str, epochs: int, groups: list[Group], **more: Any) -> Phase:
        """Return a phase of the method's recipe, whose gradients are clipped."""
        return super().phase(name, epochs, groups, clip_norm=self.settings.clip_norm or None, **more)

    def train_prompts(self, prompts: list[Group], keys: Group | None = None, key_loss: Loss | None = None) -> Learning:
        """Train prompts and rows; keys with them, or before them on queries of images as testing sees them."""
        epochs = self.settings.epochs
        if keys and key_loss:
            queries = yield Collect("queries", self.queries)
            yield self.phase(
                "keys", epochs, [keys], loss=key_loss, data=Collected(queries["values"], queries["labels"])
            )
        elif keys:
            prompts = [*prompts, keys]
        yield self.phase("train", epochs, [*prompts, *self.head.groups()])


class SlottedSettings(PromptedSettings):
    """The recipe, and for how many tasks there is room."""

    num_tasks: int = Field(
        0, ge=0, le=100_000, description="Tasks to make room for; 0 makes room for as many as the stream has."
    )


class SlottedMethod(PromptedMethod, PlansTasks, HasStructure):
    """A prompted method in which every task has a slot of its own, so that it must know their number."""

    settings: SlottedSettings
    slot: Tensor

    def __init__(self, backbone: Backbone, settings: SlottedSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.num_slots = 0
        self.register_buffer("slot", torch.zeros(1, dtype=torch.int64))

    @abstractmethod
    def make_slots(self, num_slots: int) -> None:
        """Make the parameters of all slots; none have no numbers."""

    def allocate(self, num_slots: int) -> None:
        """Make slots where their number is another one than before."""
        if num_slots != self.num_slots:
            self.make_slots(num_slots)
            self.num_slots = num_slots

    def prepare(self, num_tasks: int | None, largest_task: int) -> None:
        """Make a slot for every task, or say that their number is unknown or larger than the settings allow."""
        wanted = self.settings.num_tasks
        if wanted and num_tasks is not None and num_tasks > wanted:
            raise SettingsError(
                f"`method.num_tasks` is {wanted}, but the stream has {num_tasks} tasks; "
                f"set it to {num_tasks} or more, or to 0, which follows the stream"
            )
        self.allocate(wanted or num_tasks or self.num_slots)
        self._require_slots()

    def take_slot(self) -> int:
        """Let the next task have its slot, and return the slot's number."""
        self._require_slots()
        index = len(self.tasks)
        if index >= self.num_slots:
            raise ModelError(
                f"{self.name} has room for {self.num_slots} tasks and has learnt them all; "
                f"set `method.num_tasks` to {index + 1} or more and learn from the first task on"
            )
        self.slot.fill_(index)
        return index

    def _require_slots(self) -> None:
        """Refuse to go on without knowing the number of tasks."""
        if not self.num_slots:
            raise SettingsError(
                f"{self.name} keeps a slot for every task, but nothing says how many tasks there will be; "
                "set `method.num_tasks` to the largest number you expect"
            )

    def structure(self) -> dict[str, Any]:
        """Return the number of slots."""
        return {"num_slots": self.num_slots}

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for the slots."""
        self.allocate(int(structure["num_slots"]))


def frozen(values: Tensor) -> nn.Parameter:
    """Return values as a parameter that only a phase trains."""
    return nn.Parameter(values, requires_grad=False)


def draw_uniform(shape: tuple[int, ...], start: Start, generator: torch.Generator) -> Tensor:
    """Draw prompts or keys."""
    return torch.empty(shape).uniform_(*RANGES[start], generator=generator)


def cosines(queries_BD: Tensor, keys_SD: Tensor) -> Tensor:
    """Return the cosine of every query with every key, shape (B, S), in full precision: a choice hangs on them."""
    with torch.autocast(queries_BD.device.type, enabled=False):
        return F.normalize(queries_BD.float(), dim=1, eps=1e-6) @ F.normalize(keys_SD, dim=1, eps=1e-6).T


def most_similar(similarity_BS: Tensor, num_chosen: int) -> Tensor:
    """Return the slots that are most similar to each query, best first, shape (B, T); ties go to the lower slot."""
    return similarity_BS.sort(dim=1, descending=True, stable=True).indices[:, :num_chosen]


def vote(chosen_BT: Tensor, num_slots: int) -> Tensor:
    """Give every image the slots that the whole batch names most often, in that order; ties go to the lower slot."""
    counts_S = (chosen_BT.flatten()[:, None] == torch.arange(num_slots, device=chosen_BT.device)).sum(0)
    winners = counts_S.sort(descending=True, stable=True).indices[: chosen_BT.shape[1]]
    return winners.expand_as(chosen_BT)


def require_blocks(model: Model, num_blocks: int, settings: str) -> None:
    """Refuse prefixes for more blocks than the backbone has."""
    num_there = len(family_of(model).widths(model))
    if num_blocks > num_there:
        raise SettingsError(f"{settings} asks for {num_blocks} blocks, but the backbone has {num_there}; lower it")
