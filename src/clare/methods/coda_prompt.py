"""CODA-Prompt: prefixes made of components, weighted by how well an attended query fits their keys.

Smith et al., "CODA-Prompt: COntinual Decomposed Attention-based Prompting" (CVPR 2023).
Shapes: B images, L blocks with prefixes, C components, D features, E numbers of a component.
"""

from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.errors import SettingsError
from clare.methods._shared.prompted import SlottedMethod, SlottedSettings, frozen, require_blocks
from clare.methods.base import bare_features, register
from clare.steps import Group, Learning, Result, Solve, TaskInfo
from clare.tuners.prefix import Prefix, PrefixTuner


class CodaPromptSettings(SlottedSettings):
    """The components and the official recipe."""

    defaults: ClassVar[Any] = dict(
        initial_rows="drawn", epochs=20, learning_rate=0.001, schedule="quarter-cosine", clip_norm=0.0
    )
    num_blocks: int = Field(5, ge=1, le=1000, description="Blocks with a prefix, from the first block on.")
    num_components: int = Field(
        100, ge=1, le=100_000, description="Components of a block's prefix, over all tasks together."
    )
    prefix_length: int = Field(4, ge=1, le=1000, description="Tokens of a prefix for keys, and as many for values.")
    penalty_weight: float = Field(
        0.0, ge=0, le=1000, description="Weight of the penalty on components that are not orthonormal."
    )


@register
class CodaPrompt(SlottedMethod):
    """Each task adds components, orthogonal to all before them at the start; those of old tasks are frozen."""

    name = "coda-prompt"
    summary = "makes prefixes of weighted components; each task trains new ones, orthogonal at their start"
    family = "prompts"
    tiny: ClassVar[dict[str, Any]] = {"num_tasks": 3, "num_blocks": 2, "num_components": 12}
    settings: CodaPromptSettings

    def __init__(self, backbone: Backbone, settings: CodaPromptSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        require_blocks(backbone.vit, settings.num_blocks, "`method.num_blocks`")
        width = self.head.num_features
        if settings.num_components > width:
            raise SettingsError(
                f"`method.num_components` is {settings.num_components}, but only {width} directions of the "
                f"backbone's features are orthogonal; set it to {width} or less"
            )
        self.prefixes = PrefixTuner(backbone.vit)
        self.make_slots(0)
        self.allocate(settings.num_tasks)

    def make_slots(self, num_slots: int) -> None:
        """Make room for all components: keys, the attention on queries, and prompts, zero until their task."""
        settings = self.settings
        self.per_task = settings.num_components // num_slots if num_slots else 0
        if num_slots and not self.per_task:
            raise SettingsError(
                f"`method.num_components` is {settings.num_components}, but there are {num_slots} tasks, and each "
                f"needs a component of its own; set it to {num_slots} or more"
            )
        shape = (settings.num_blocks, num_slots * self.per_task)
        device = self.slot.device
        self.keys = frozen(torch.zeros(*shape, self.head.num_features, device=device))
        self.attentions = frozen(torch.zeros_like(self.keys))
        self.prompts = frozen(torch.zeros(*shape, 2 * settings.prefix_length * self.prefixes.width, device=device))

    def components(self) -> dict[str, nn.Parameter]:
        """Return what a component is made of, each part of shape (L, C, D or E)."""
        return {"keys": self.keys, "attentions": self.attentions, "prompts": self.prompts}

    def learn(self, task: TaskInfo) -> Learning:
        """Add the task's components, and train them alone with the task's rows."""
        first = self.take_slot() * self.per_task
        fresh = yield Solve("components", partial(self._fresh_components, first, task.generator("components")))
        for name, parameter in self.components().items():
            parameter.data[:, first : first + self.per_task] = fresh[name]
        self.open_rows(task)
        own = self._tasks_of_components() == self.slot
        parts = self.components().values()
        yield from self.train_prompts([Group(part, mask=own[:, None].expand_as(part)) for part in parts])
        yield from self.head.finish(len(task.classes))

    def _fresh_components(self, first: int, generator: torch.Generator) -> Result:
        """Draw the components of a task and make them orthogonal to each other and to those before them."""
        fresh = {}
        for name, parameter in self.components().items():
            old = parameter.data[:, :first].double()
            draws = torch.randn(len(old), self.per_task, old.shape[2], generator=generator).to(old)
            fresh[name] = orthonormal_rows(old, draws).to(parameter)
        return fresh

    def _tasks_of_components(self) -> Tensor:
        """Return the number of the task that each component belongs to, shape (C,)."""
        return torch.arange(self.keys.shape[1], device=self.slot.device) // self.per_task

    def features_from(self, images: Tensor, queries: Tensor) -> Tensor:
        """Return the features under the prefixes that fit each image's query."""
        own = self._tasks_of_components() == self.slot
        keys, attentions, prompts = (held(part, own) for part in self.components().values())
        weights = component_weights(queries, attentions, keys)
        with self.prefixes.joined(self.prefixes_of(weights @ prompts)):
            return bare_features(self, images)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the task's classes, plus the penalty where it has a weight."""
        losses = super().loss(images, labels)
        return losses + self.penalty() if self.settings.penalty_weight else losses

    def penalty(self) -> Tensor:
        """Return the weighted distance from orthonormality of all components so far, added up over blocks."""
        tasks = self._tasks_of_components()
        parts = [held(part, tasks == self.slot) for part in self.components().values()]
        total = torch.stack([distance_from_orthonormal(part, tasks <= self.slot) for part in parts]).sum()
        return self.settings.penalty_weight * total

    def prefixes_of(self, prompts_LBE: Tensor) -> list[Prefix]:
        """Return keys and values for each block: the first and the last half of its prompt."""
        num_blocks, num_images, _ = prompts_LBE.shape
        pairs = prompts_LBE.view(num_blocks, num_images, 2, self.settings.prefix_length, self.prefixes.width)
        return [(block[:, 0], block[:, 1]) for block in pairs]


def orthonormal_rows(old_LCE: Tensor, draws_LNE: Tensor) -> Tensor:
    """Return draws less their projections on all rows before them, taken one by one, and divided by their norms."""
    rows = old_LCE
    for draw in draws_LNE.unbind(1):
        shares = (rows @ draw[..., None]).squeeze(2) / rows.square().sum(2).clamp(min=1e-8)
        rows = torch.cat([rows, (draw - (shares[:, None] @ rows).squeeze(1))[:, None]], 1)
    return F.normalize(rows[:, old_LCE.shape[1] :], dim=2)


def component_weights(queries_BD: Tensor, attentions_LCD: Tensor, keys_LCD: Tensor) -> Tensor:
    """Return the cosine of every attended query, query * attention, with its key, shape (L, B, C)."""
    with torch.autocast(queries_BD.device.type, enabled=False):
        queries = queries_BD.float()
        products = queries @ (attentions_LCD * F.normalize(keys_LCD, dim=2)).mT
        # Norms of all attended queries as one product; components that have not come yet are zero.
        norms = (queries.square() @ attentions_LCD.square().mT).clamp(min=1e-24).sqrt()
        return products / norms


def distance_from_orthonormal(rows_LCE: Tensor, in_use_C: Tensor) -> Tensor:
    """Return the mean squared entry of rows @ rows^T - 1 over the rows in use, shape (L,)."""
    with torch.autocast(rows_LCE.device.type, enabled=False):
        identity = torch.eye(rows_LCE.shape[1], device=rows_LCE.device)
        squares = (rows_LCE @ rows_LCE.mT - identity).square()
        pairs = (in_use_C[:, None] & in_use_C).to(squares)
        return (squares * pairs).sum((1, 2)) / pairs.sum()


def held(rows_LCE: Tensor, own_C: Tensor) -> Tensor:
    """Return the rows with a gradient for the task's own ones alone, so that clipping counts no others."""
    return torch.where(own_C[:, None], rows_LCE, rows_LCE.detach())
