"""DualPrompt: prefixes that all tasks share in the first blocks, and prefixes of each task in the blocks after them.

Wang et al., "DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning" (ECCV 2022).
Shapes: B images (or 1 for all alike), S slots, L blocks with prefixes of tasks, P tokens, D width.
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.prompted import (
    KeyedSettings,
    SlottedMethod,
    SlottedSettings,
    cosines,
    draw_uniform,
    frozen,
    most_similar,
    require_blocks,
    vote,
)
from clare.methods.base import bare_features, register
from clare.seeds import generator_at
from clare.steps import Group, Learning, TaskInfo
from clare.tuners.prefix import Prefix, PrefixTuner


class DualPromptSettings(KeyedSettings, SlottedSettings):
    """The prefixes, how a task is inferred, and the official recipe for CIFAR-100."""

    defaults: ClassVar[Any] = {"batch_size": 24, "learning_rate": 0.0028125}
    num_general_blocks: int = Field(
        2, ge=1, le=1000, description="Blocks with the prefix that all tasks share, from the first block on."
    )
    num_expert_blocks: int = Field(
        3, ge=1, le=1000, description="Blocks with a prefix of each task, next to those that all tasks share."
    )
    general_length: int = Field(5, ge=1, le=1000, description="Tokens of a shared prefix.")
    expert_length: int = Field(5, ge=1, le=1000, description="Tokens of a task's prefix.")
    candidates: Literal["all", "learnt"] = Field(
        "all", description="Slots among which a test image finds its task: all (official), or those of learnt tasks."
    )


@register
class DualPrompt(SlottedMethod):
    """General prefixes go on learning; the expert prefixes and the key of a task are its own."""

    name = "dualprompt"
    summary = "trains shared prefixes in early blocks and, after them, prefixes of each task found by its key"
    family = "prompts"
    tiny: ClassVar[dict[str, Any]] = {"num_tasks": 3, "num_general_blocks": 1, "num_expert_blocks": 1}
    settings: DualPromptSettings

    def __init__(self, backbone: Backbone, settings: DualPromptSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        num_general, num_expert = settings.num_general_blocks, settings.num_expert_blocks
        require_blocks(
            backbone.vit, num_general + num_expert, "`method.num_general_blocks` plus `method.num_expert_blocks`"
        )
        self.prefixes = PrefixTuner(backbone.vit)
        shape = (num_general, 2, settings.general_length, self.prefixes.width)
        self.general = frozen(draw_uniform(shape, settings.prompt_start, generator_at(seed, "general")))
        self.make_slots(0)
        self.allocate(settings.num_tasks)

    def make_slots(self, num_slots: int) -> None:
        """Draw expert prefixes and keys."""
        settings, generator = self.settings, generator_at(self.seed, "experts")
        shape = (num_slots, settings.num_expert_blocks, 2, settings.expert_length, self.prefixes.width)
        experts = draw_uniform(shape, settings.prompt_start, generator)
        keys = draw_uniform((num_slots, self.head.num_features), settings.prompt_start, generator)
        self.experts, self.keys = frozen(experts.to(self.general)), frozen(keys.to(self.general))

    def learn(self, task: TaskInfo) -> Learning:
        """Start from the previous task's experts, and train them, the task's key and what is general."""
        slot = self.take_slot()
        if slot > 0:
            self.experts.data[slot] = self.experts.data[slot - 1]
        self.open_rows(task)
        own = torch.arange(self.num_slots, device=self.slot.device) == self.slot
        experts = Group(self.experts, mask=own[:, None, None, None, None].expand_as(self.experts))
        keys = Group(self.keys, mask=own[:, None].expand_as(self.keys))
        key_loss = self.key_loss if self.settings.key_queries == "plain" else None
        yield from self.train_prompts([Group(self.general), experts], keys, key_loss)
        yield from self.head.finish(len(task.classes))

    def features_from(self, images: Tensor, queries: Tensor) -> Tensor:
        """Return the features under the experts of the task that each image seems to come from."""
        return self.prompted(images, self.infer(cosines(queries, self.keys)))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the task's classes, less its similarity to the task's key."""
        return self.head.block_loss(self.prompted(images, self.slot), labels) + self.key_loss(
            self.queries(images), labels
        )

    def key_loss(self, queries: Tensor, _: Tensor) -> Tensor:
        """Return each query's similarity to the task's key, less of which is more of a loss."""
        return -self.settings.pull_weight * cosines(queries, self.keys.index_select(0, self.slot)).squeeze(1)

    def infer(self, similarity: Tensor) -> Tensor:
        """Return the slot of each image, shape (B,)."""
        if self.settings.candidates == "learnt":
            is_open = torch.arange(self.num_slots, device=similarity.device) <= self.slot
            similarity = similarity.masked_fill(~is_open, -torch.inf)
        slots = most_similar(similarity, 1)
        return (vote(slots, self.num_slots) if self.settings.vote_at_test else slots).squeeze(1)

    def prompted(self, images: Tensor, slots: Tensor) -> Tensor:
        """Return the features of images with the experts of these slots, one for each image or one for all."""
        with self.prefixes.joined(self.prefixes_of(slots)):
            return bare_features(self, images)

    def prefixes_of(self, slots: Tensor) -> list[Prefix]:
        """Return keys and values for each block: shared ones first, then those of the slots."""
        general = [(keys[None], values[None]) for keys, values in self.general]
        experts_LB = self.experts.index_select(0, slots).transpose(0, 1)
        return general + [(pairs[:, 0], pairs[:, 1]) for pairs in experts_LB]
