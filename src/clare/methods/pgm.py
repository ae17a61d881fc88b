"""PGM: of every four numbers a task's network has some, by chances that are learnt with them and harden.

Wan, Yang: "Probabilistic Group Mask Guided Discrete Optimization for Incremental Learning" (ICML 2025).
Shapes: N numbers, G groups of four, Q ways to choose of a group.
"""

from itertools import combinations
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.methods._shared.masked import MaskedMethod, MaskedSettings
from clare.methods.base import register
from clare.seeds import generator_at
from clare.steps import Choosing, Group, TaskInfo

GROUP = 4
"""Numbers that stand side by side in a row, of which some are chosen."""
SPREAD = 0.01
"""Deviation of the gates at first."""


class PgmSettings(MaskedSettings):
    """How many of four numbers are chosen, and how the choice hardens."""

    defaults: ClassVar[Any] = {"optimize": "adam", "weight_decay": 0.0, "learning_rate": 1e-3, "outside": "zero"}
    keep: int = Field(2, ge=1, le=GROUP - 1, description="Numbers of every four that a task's network has.")
    first_factor: float = Field(1e3, gt=0, le=1e9, description="Factor on gates at the start of a task's training.")
    last_factor: float = Field(1e4, gt=0, le=1e9, description="Factor on gates at its end.")
    first_temperature: float = Field(4.0, gt=0, le=1000, description="What noisy gates are divided by at the start.")
    last_temperature: float = Field(0.1, gt=0, le=1000, description="What they are divided by at the end.")


@register
class ProbabilisticGroupMasks(MaskedMethod):
    """Networks that overlap, as WSN's, and have the same share of every four numbers."""

    name = "pgm"
    summary = "learns of every four numbers which ones a task's network has, by chances that harden"
    settings_type = PgmSettings
    settings: PgmSettings
    places: Tensor
    options: Tensor
    progress: Tensor

    def __init__(self, backbone: Backbone, settings: PgmSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed, settings.outside)
        self.draw_zeros(settings)
        places = grouped(self.layer_sizes, self.is_matrix)
        options = options_of(settings.keep)
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("options", options, persistent=False)
        self.register_buffer("progress", torch.zeros(()), persistent=False)
        gates = torch.randn(len(places) // GROUP, len(options), generator=generator_at(seed, "gates"))
        self.gates = nn.Parameter(SPREAD * gates, requires_grad=False)

    def find_mask(self, task: TaskInfo) -> Choosing:
        """Train gates, free numbers and rows together, and choose of each group what is likeliest in the end."""
        groups = [Group(self.values, mask=self.free), Group(self.gates), *self.head.groups()]
        yield self.phase("train", self.settings.epochs, groups, progress=self.progress)
        return self.placed(self.options[self.gates.argmax(1)]) > 0

    def running(self) -> Tensor:
        """Return a network drawn by the chances as hard as they are by now."""
        settings = self.settings
        factor = settings.first_factor + (settings.last_factor - settings.first_factor) * self.progress
        heat = settings.first_temperature + (settings.last_temperature - settings.first_temperature) * self.progress
        noise = -torch.empty_like(self.gates).exponential_().log()
        # In whole precision, in which gates differ by thousandths.
        with torch.autocast(self.gates.device.type, enabled=False):
            mask = self.placed(chances(self.gates, factor, heat, noise) @ self.options)
        return self.outside + mask * (self.values - self.outside)

    def placed(self, choices: Tensor) -> Tensor:
        """Return choices of all groups, shape (G, 4), where their numbers are; all else is chosen."""
        return torch.ones_like(self.values).scatter(0, self.places, choices.flatten())


def chances(gates_GQ: Tensor, factor: Tensor | float, temperature: Tensor | float, noise_GQ: Tensor | float) -> Tensor:
    """Return how much of each way to choose is taken: the Gumbel softmax of the gates times the factor."""
    return ((factor * gates_GQ + noise_GQ) / temperature).softmax(1)


def options_of(keep: int) -> Tensor:
    """Return all ways to choose so many of a group, shape (Q, 4)."""
    ways = [[float(place in chosen) for place in range(GROUP)] for chosen in combinations(range(GROUP), keep)]
    return torch.tensor(ways)


def grouped(layer_sizes: list[int], is_matrix: list[bool]) -> Tensor:
    """Return the places of all numbers that are in groups; what is over in a matrix or in none is in no group."""
    places = torch.split(torch.arange(sum(layer_sizes)), layer_sizes)
    return torch.cat(
        [part[: len(part) // GROUP * GROUP] for part, is_one in zip(places, is_matrix, strict=True) if is_one]
    )
