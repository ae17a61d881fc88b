"""InfLoRA and SD-LoRA over six tasks and several epochs beside the numbers of their official modules."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from lora_golden import Golden, close, load_golden
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.engine.optim import scheduled_rate
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.methods.base import Method
from clare.methods.inflora import InfLora, InfLoraSettings
from clare.methods.sdlora import SdLora, SdLoraSettings
from clare.steps import Pass, Phase, Solve, TaskInfo

NUM_TASKS, NUM_CLASSES, NUM_BATCHES, BATCH_SIZE = 6, 3, 2, 6
TOLERANCE = 1e-5
"""Numbers were computed in double precision and are kept in single; so are the products of our moments."""


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    """Compute in double precision, as the numbers were recorded."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def batch(task: int, index: int) -> tuple[Tensor, Tensor]:
    """Draw the images of a batch as for the recording: noisy copies of one random tile for each class."""
    random, labels = np.random.RandomState([task, index]), np.arange(BATCH_SIZE) % NUM_CLASSES
    tiles = [np.random.RandomState([7, task, label]).randint(0, 256, (3, 7, 7)) for label in range(NUM_CLASSES)]
    patterns = np.stack([np.tile(tiles[label], (1, 4, 4)) for label in labels])
    pixels = np.clip(patterns + random.normal(0, 40, patterns.shape), 0, 255).astype(np.uint8)
    return (torch.from_numpy(pixels).double() - 128) / 32, torch.from_numpy(labels)


def seen_images() -> Tensor:
    """Draw two images of every task."""
    return torch.cat([batch(task, 99)[0][:2] for task in range(NUM_TASKS)])


def backbone_of(name: str) -> Backbone:
    """Return the two-block ViT of the shorter recording."""
    backbone = load_golden(name).backbone()
    backbone.vit.double()
    return backbone


@torch.no_grad()
def take_task(method: Method, task: int, begin: dict[Any, Tensor]) -> Tensor:
    """Learn a task of fixed batches from the recorded initial values, and return the loss of every step."""
    losses: list[Tensor] = []
    classes = tuple(f"class {NUM_CLASSES * task + label}" for label in range(NUM_CLASSES))
    learning = method.learn(TaskInfo(task, classes))
    batches = [batch(task, index) for index in range(NUM_BATCHES)]
    result: Any = None
    while True:
        try:
            step = learning.send(result)
        except StopIteration:
            method.tasks.append(classes)
            return torch.stack(losses)
        result = {}
        if isinstance(step, Phase):
            for parameter, values in begin.items():
                parameter().copy_(values)
            losses += train(step, batches)
        elif isinstance(step, Pass):
            ones = torch.ones(BATCH_SIZE, dtype=torch.float32)
            parts = [step.statistic(images, labels, ones) for images, labels in batches]
            result = {name: torch.stack([part[name] for part in parts]).sum(0) for name in parts[0]}
        elif isinstance(step, Solve):
            result = step.function()


def train(phase: Phase, batches: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Train all epochs of a phase with the engine's step."""
    step, losses = TrainStep(Ranks(EngineSettings(device="cpu")), phase), []
    for parameter in step.parameters:
        parameter.requires_grad_(True)
    for epoch in range(phase.epochs):
        optimizer = phase.optimizer
        step.optimizer.set_rate(scheduled_rate(optimizer.learning_rate, optimizer.schedule, epoch, phase.epochs))
        for images, labels in batches:
            losses.append(phase.loss(images, labels).mean())
            step(images, labels, torch.ones(len(labels)), len(labels))
    for parameter in step.parameters:
        parameter.requires_grad_(False)
    return losses


def agree(ours: Tensor, golden: Golden, name: str) -> None:
    """Assert that a tensor is the recorded one."""
    close(ours, golden[name], atol=TOLERANCE)


def test_inflora_through_both_turns_of_its_basis() -> None:
    """The second block's basis turns to the complement after three tasks, the first's after four; then both shrink."""
    golden = load_golden("inflora_six")
    settings = {"rank": 3, "epochs": 3, "batch_size": 6, "learning_rate": 0.01, "threshold": 0.995, "num_tasks": 6}
    method = InfLora(backbone_of("inflora"), InfLoraSettings.model_validate(settings), 0).double()
    merged = torch.zeros_like(method.merged)
    turns = []
    for task in range(NUM_TASKS):
        losses = take_task(method, task, {lambda: method.head.block: golden[f"task{task}.init.rows"]})
        agree(losses, golden, f"task{task}.losses")
        merged += golden[f"task{task}.delta"]
        close(method.merged, merged, atol=(task + 1) * TOLERANCE)
        agree(method.head.rows[-NUM_CLASSES:], golden, f"task{task}.after.rows")
        agree(method(seen_images()), golden, f"task{task}.logits")
        bases = method.memory.bases()
        assert [basis.columns.shape[1] for basis in bases] == golden[f"task{task}.columns"].tolist()
        turns.append([basis.is_complement for basis in bases])
        assert turns[-1] == golden[f"task{task}.retain"].bool().tolist()
        agree(torch.stack([basis.columns @ basis.columns.T for basis in bases]), golden, f"task{task}.projector")
    assert turns == [[False, False]] * 2 + [[False, True]] + [[True, True]] * 3


def test_sdlora_with_lower_ranks_from_the_fifth_task_on() -> None:
    golden = load_golden("sdlora_six")
    settings = {"rank": 10, "reduces_rank": True, "epochs": 2, "batch_size": 6, "learning_rate": 0.05}
    method = SdLora(backbone_of("sdlora"), SdLoraSettings.model_validate(settings), 0).double()
    for task in range(NUM_TASKS):
        down = golden[f"task{task}.init.down"].double().view(2, 2, -1, 32)
        rank = down.shape[2]
        assert rank == method.rank_of(task) == (10 if task < 4 else 8)
        rows = golden[f"task{task}.init.rows"]
        begin = {lambda rank=rank: method.lora.down[:, :, :rank]: down, lambda: method.head.block: rows}
        agree(take_task(method, task, begin), golden, f"task{task}.losses")
        agree(method.lora.product().flatten(0, 1), golden, f"task{task}.product")
        agree(method.magnitudes, golden, f"task{task}.magnitudes")
        agree(method.head.rows, golden, f"task{task}.after.rows")
        agree(method(seen_images()), golden, f"task{task}.logits")
    assert method.num_earlier == 4 * 10 + 8
