"""Recorded numbers of the official low-rank methods, and a way to take the recorded steps with our own pieces."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from clare.backbones.vit import Backbone, build_embedded, freeze
from clare.engine.optim import scheduled_rate
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.methods.base import Method
from clare.steps import Pass, Phase, Solve, Step, TaskInfo

FOLDER = Path(__file__).parents[1] / "golden"
NUM_CLASSES = 3
NUM_STEPS = 3


@dataclass(frozen=True)
class Golden:
    """A recorded scenario: two tasks of three batches, each of eight images of three classes."""

    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def images(self, name: str) -> Tensor:
        """Return images as the network sees them."""
        return (self.tensors[name].float() - 128) / 32

    def batch(self, task: int, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs of a step and labels within its task."""
        return self.images(f"task{task}.step{step}.images"), self[f"task{task}.step{step}.labels"] - NUM_CLASSES * task

    def stacked(self, *names: str) -> Tensor:
        """Return the tensors of both blocks for each name, shape (2, len(names), ...)."""
        return torch.stack([torch.stack([self[name.format(block)] for name in names]) for block in range(2)])

    def backbone(self) -> Backbone:
        """Return the recorded two-block ViT."""
        vit = build_embedded(embed_dim=32, depth=2, num_heads=4, in_chans=3)
        weights = {name.removeprefix("backbone."): value for name, value in self.tensors.items()}
        vit.load_state_dict({name: weights[name] for name in vit.state_dict()})
        return freeze(vit, None)


def load_golden(name: str) -> Golden:
    """Read a recorded scenario."""
    return Golden(load_file(FOLDER / f"{name}.safetensors"))


@dataclass
class Trace:
    """What a method asked for and got back, and its logits and losses before each training step."""

    results: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    logits: list[Tensor] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)


@torch.no_grad()
def take_task(method: Method, golden: Golden, task: int, begin: Callable[[], None]) -> Trace:
    """Learn a recorded task, all sweeps and steps over its batches; `begin` sets the recorded initial values."""
    trace = Trace()
    classes = tuple(f"class {NUM_CLASSES * task + label}" for label in range(NUM_CLASSES))
    learning = method.learn(TaskInfo(task, classes))
    result: Any = None
    while True:
        try:
            step: Step = learning.send(result)
        except StopIteration:
            method.tasks.append(classes)
            return trace
        result = {}
        if isinstance(step, Phase):
            begin()
            train(method, step, golden, task, trace)
        elif isinstance(step, Pass):
            batches = [golden.batch(task, index) for index in range(NUM_STEPS)]
            parts = [step.statistic(images, labels, torch.ones(len(labels))) for images, labels in batches]
            result = {name: sum(part[name] for part in parts) for name in parts[0]}
        elif isinstance(step, Solve):
            result = step.function()
        if not isinstance(step, Phase):
            trace.results[step.name] = result  # type: ignore[union-attr]


def train(method: Method, phase: Phase, golden: Golden, task: int, trace: Trace) -> None:
    """Take the recorded training steps of a task, all in one epoch."""
    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
    optimizer = phase.optimizer
    step.optimizer.set_rate(scheduled_rate(optimizer.learning_rate, optimizer.schedule, 0, 1))
    for parameter in step.parameters:
        parameter.requires_grad_(True)
    for index in range(NUM_STEPS):
        images, labels = golden.batch(task, index)
        trace.logits.append(method.head.block_logits(method.features(images)))
        trace.losses.append(phase.loss(images, labels).mean())
        step(images, labels, torch.ones(len(labels)), len(labels))
    for parameter in step.parameters:
        parameter.requires_grad_(False)


def close(ours: Tensor, recorded: Tensor, atol: float = 1e-5) -> None:
    """Assert that two tensors agree."""
    torch.testing.assert_close(ours, recorded.to(ours.dtype), rtol=1e-5, atol=atol)


def head_rows(golden: Golden, prefix: str) -> Tensor:
    """Return recorded rows with their biases as the last column."""
    return torch.cat([golden[f"{prefix}.weight"], golden[f"{prefix}.bias"][:, None]], dim=1)


def check_steps(trace: Trace, golden: Golden, task: int) -> None:
    """Assert that logits of the task's own classes and losses are those recorded before each step."""
    for index in range(NUM_STEPS):
        close(trace.logits[index], golden[f"task{task}.step{index}.logits"][:, -NUM_CLASSES:])
        close(trace.losses[index], golden[f"task{task}.step{index}.loss"])
