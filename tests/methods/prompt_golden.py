"""Recorded runs of the official prompt methods: their tensors, their backbone, and their steps taken by our engine."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from clare.backbones.vit import Backbone, build_embedded, freeze
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.methods.base import Method
from clare.steps import Phase, Result, Solve, TaskInfo

FOLDER = Path(__file__).parents[1] / "golden"
NUM_STEPS, CLASSES_PER_TASK, BATCH_SIZE = 3, 3, 8


class Golden:
    """One recording; `prefix` selects the variant, whose missing names are those of the plain one."""

    def __init__(self, name: str, prefix: str = "", head: str = "head") -> None:
        self.tensors = load_file(FOLDER / f"{name}.safetensors")
        self.prefix, self.head = prefix, head

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors.get(self.prefix + name, self.tensors.get(name, torch.zeros(0)))

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.tensors or name in self.tensors

    def backbone(self) -> Backbone:
        """Return the recorded ViT."""
        vit = build_embedded(in_chans=3, embed_dim=32, depth=2, num_heads=4)
        kept = {key: value for key, value in self.tensors.items() if key.startswith("backbone.")}
        vit.load_state_dict({key.removeprefix("backbone."): value for key, value in kept.items()})
        return freeze(vit, None)

    def images(self, name: str) -> Tensor:
        """Return the network's input."""
        return (self[f"{name}.images"].float() - 128) / 32

    def batch(self, task: int, step: int) -> tuple[Tensor, Tensor]:
        """Return images and labels of a step, labels counted within the task."""
        name = f"task{task}.step{step}"
        return self.images(name), self[f"{name}.labels"] - CLASSES_PER_TASK * task

    def rows(self, name: str, task: int | None = None) -> Tensor:
        """Return the head's rows with their biases as the last column, all of them or those of a task."""
        rows = torch.cat([self[f"{name}.{self.head}.weight"], self[f"{name}.{self.head}.bias"][:, None]], 1)
        return rows if task is None else rows[CLASSES_PER_TASK * task : CLASSES_PER_TASK * (task + 1)]


def learning_steps(
    method: Method, golden: Golden, task: int, rate: float, solve: Callable[[], Result] | None = None
) -> Iterator[tuple[str, Phase, Tensor, Tensor]]:
    """Learn a recorded task; before each step yield its name, the phase and the batch, and check its loss after it."""
    info = TaskInfo(task, tuple(f"class {task}.{index}" for index in range(CLASSES_PER_TASK)))
    learning = method.learn(info)
    step = next(learning)
    if isinstance(step, Solve):
        step = learning.send((solve or step.function)())
    assert isinstance(step, Phase)
    method.head.block.data.copy_(golden.rows("init", task))
    parameters = [group.parameter.requires_grad_(True) for group in step.groups]
    train = TrainStep(Ranks(EngineSettings(device="cpu")), step)
    train.optimizer.set_rate(rate)
    method.train()
    for index in range(NUM_STEPS):
        name, (images, labels) = f"task{task}.step{index}", golden.batch(task, index)
        yield name, step, images, labels
        train.total.zero_()
        train(images, labels, torch.ones(BATCH_SIZE), BATCH_SIZE)
        close(train.total / BATCH_SIZE, golden[f"{name}.loss"])
    for parameter in parameters:
        parameter.requires_grad_(False)
    with suppress(StopIteration):
        learning.send({})
    method.tasks.append(info.classes)
    method.eval()


def gradients(phase: Phase, images: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the gradients of the mean loss in the order of the phase's groups."""
    with torch.enable_grad():
        loss = phase.loss(images, labels).mean()
        return list(torch.autograd.grad(loss, [group.parameter for group in phase.groups]))


def norm_of(parts: list[Tensor]) -> Tensor:
    """Return the norm of all tensors together."""
    return torch.stack([part.square().sum() for part in parts]).sum().sqrt()


def close(ours: Tensor, recorded: Tensor, tolerance: float = 1e-5) -> None:
    """Assert that two tensors agree."""
    assert recorded.numel() or not ours.numel(), "the recording has no such tensor"
    torch.testing.assert_close(ours.detach(), recorded, rtol=tolerance, atol=tolerance)
