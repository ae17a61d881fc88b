"""L2P: a pool of prompts, of which each image's query takes the most similar ones.

Wang et al., "Learning to Prompt for Continual Learning" (CVPR 2022).
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from clare.backbones.stages import class_position, embed, mean_feature, run_blocks
from clare.backbones.vit import Backbone
from clare.methods._shared.prompted import (
    KeyedSettings,
    PromptedMethod,
    cosines,
    draw_uniform,
    frozen,
    most_similar,
    vote,
)
from clare.methods.base import register
from clare.methods.protocols import KeepsRowsAlone
from clare.seeds import generator_at
from clare.steps import Group, Learning, TaskInfo
from clare.tuners.limits import require_token_room


class L2pSettings(KeyedSettings):
    """The pool, how prompts are chosen, and the official recipe for CIFAR-100."""

    pool_size: int = Field(10, ge=1, le=10_000, description="Prompts in the pool, each with a key.")
    prompt_length: int = Field(10, ge=1, le=1000, description="Tokens of a prompt.")
    num_chosen: int = Field(4, ge=1, le=10_000, description="Prompts that an image gets.")
    prompt_position: Literal["none", "class-token"] = Field(
        "none", description="Position embedding of prompts: none (official) or the class token's (PyTorch port)."
    )
    vote_in_training: bool = Field(
        True, description="In training, all images of a batch get the prompts that most of them choose."
    )

    @model_validator(mode="after")
    def _enough_prompts(self) -> "L2pSettings":
        """Refuse to choose more prompts than there are."""
        if self.num_chosen > self.pool_size:
            raise ValueError(
                f"num_chosen is {self.num_chosen}, but the pool holds pool_size = {self.pool_size} prompts; "
                "lower the one or raise the other"
            )
        return self


@register
class L2p(PromptedMethod, KeepsRowsAlone):
    """Prompts of a shared pool join the patches; their outputs are the feature."""

    name = "l2p"
    summary = "puts prompts from a shared pool before the patches, chosen by the image's query"
    family = "prompts"
    tiny: ClassVar[dict[str, Any]] = {"prompt_length": 2, "num_chosen": 2}
    settings: L2pSettings

    def __init__(self, backbone: Backbone, settings: L2pSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        width, generator = require_token_room(backbone.vit, "prompts"), generator_at(seed, "prompts")
        if settings.prompt_position == "class-token":
            class_position(backbone.vit)
        shape = (settings.pool_size, settings.prompt_length, width)
        self.prompts = frozen(draw_uniform(shape, settings.prompt_start, generator))
        self.keys = frozen(draw_uniform((settings.pool_size, width), settings.prompt_start, generator))

    def learn(self, task: TaskInfo) -> Learning:
        """Train the whole pool with the task's rows."""
        self.open_rows(task)
        key_loss = self.key_loss if self.settings.key_queries == "plain" else None
        yield from self.train_prompts([Group(self.prompts)], Group(self.keys), key_loss)
        yield from self.head.finish(len(task.classes))

    def features_from(self, images: Tensor, queries: Tensor) -> Tensor:
        """Return the mean output of the chosen prompts' tokens."""
        return self.prompted(images, self.choose(cosines(queries, self.keys)))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the task's classes, less its similarity to the chosen keys."""
        queries = self.queries(images)
        return self.head.block_loss(self.features_from(images, queries), labels) + self.key_loss(queries, labels)

    def key_loss(self, queries: Tensor, _: Tensor) -> Tensor:
        """Return each query's similarity to the chosen keys, less of which is more of a loss."""
        similarity = cosines(queries, self.keys)
        return -self.settings.pull_weight * similarity.gather(1, self.choose(similarity)).sum(1)

    def choose(self, similarity: Tensor) -> Tensor:
        """Return the prompts of each image, best first."""
        settings = self.settings
        chosen = most_similar(similarity, settings.num_chosen)
        votes = settings.vote_in_training if self.training else settings.vote_at_test
        return vote(chosen, settings.pool_size) if votes else chosen

    def prompted(self, images: Tensor, chosen: Tensor) -> Tensor:
        """Return the features of images with these prompts."""
        prompts = self.prompts[chosen].flatten(1, 2)
        if self.settings.prompt_position == "class-token":
            prompts = prompts + class_position(self.backbone)
        tokens = torch.cat([prompts, embed(self.backbone, images)], 1)
        return mean_feature(self.backbone, run_blocks(self.backbone, tokens)[:, : prompts.shape[1]])
