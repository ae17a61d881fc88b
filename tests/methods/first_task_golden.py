"""A recorded run of an official implementation, and a way to lead a method through the same steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from clare.backbones.vit import Backbone, freeze
from clare.engine.context import Context
from clare.engine.step import TrainStep
from clare.methods._shared.first_task import FirstTaskMethod
from clare.steps import Collect, Pass, Phase, Result, Solve, Step, TaskInfo

TENSORS = Path(__file__).parents[1] / "golden"
SIZES = {"img_size": 28, "patch_size": 7, "embed_dim": 32, "depth": 2, "num_heads": 4}


@dataclass
class Golden:
    """The recorded tensors of one file; `zero` is the byte that stands for zero."""

    name: str
    zero: int = 128
    tensors: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = load_file(TENSORS / f"{self.name}.safetensors")

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def backbone(self) -> Backbone:
        """Return the recorded backbone, built by timm."""
        vit = cast(VisionTransformer, timm.create_model("vit_tiny_patch16_224", num_classes=0, **SIZES))
        prefix = "backbone."
        vit.load_state_dict({k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)})
        return freeze(vit, None)

    def images(self, name: str) -> Tensor:
        """Return the network's input."""
        return (self[f"{name}.images"].float() - self.zero) / 32

    def task(self, task: int) -> tuple[Tensor, Tensor]:
        """Return all images of a task and their labels within it, in the recorded order."""
        images = [self.images(f"task{task}.step{step}") for step in range(3)]
        labels = [self[f"task{task}.step{step}.labels"] for step in range(3)]
        return torch.cat(images), torch.cat(labels) - 3 * task

    def adapter(self, name: str, down: str = "down", up: str = "up") -> Tensor:
        """Return recorded adapters in our flat order; what was not recorded is zero."""
        shapes = {f"{down}.weight": (8, 32), f"{down}.bias": 8, f"{up}.weight": (32, 8), f"{up}.bias": 32}
        parts = [
            self.tensors.get(f"{name}.{block}.{part}", torch.zeros(shape))
            for block in range(2)
            for part, shape in shapes.items()
        ]
        return torch.cat([part.flatten() for part in parts])


@dataclass
class Trained:
    """What the phase of the first task went through: losses and logits before each update, rows and factor after."""

    losses: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    rows: Tensor = field(default_factory=lambda: torch.zeros(0))
    factor: Tensor = field(default_factory=lambda: torch.zeros(0))


def train(golden: Golden, context: Context, method: FirstTaskMethod, phase: Phase, rows: Tensor) -> Trained:
    """Take the three recorded steps from the recorded rows with the engine's step."""
    block, factor = (group.parameter for group in phase.groups[-2:])
    block.data.copy_(rows)
    for group in phase.groups:
        group.parameter.requires_grad_(True)
    step, trained = TrainStep(context.ranks, phase), Trained()
    step.optimizer.set_rate(phase.optimizer.learning_rate)
    for index in range(3):
        images, labels = golden.images(f"task0.step{index}"), golden[f"task0.step{index}.labels"]
        features = F.normalize(method.tuned_features(images), dim=1)
        trained.logits.append(factor.data * features @ F.normalize(block.data, dim=1).T)
        trained.losses.append(phase.loss(images, labels).mean().detach())
        step(images, labels, torch.ones(8), 8)
    for group in phase.groups:
        group.parameter.requires_grad_(False)
    trained.rows, trained.factor = block.data.clone(), factor.data.clone()
    return trained


@torch.no_grad()
def learn(golden: Golden, method: FirstTaskMethod, task: int, run_phase: Callable[[Phase], None]) -> None:
    """Lead a method through a recorded task: its images in the recorded order, phases by the given function."""
    images, labels = golden.task(task)
    classes = tuple(f"class {3 * task + index}" for index in range(3))
    learning = method.learn(TaskInfo(task, classes))

    def perform(step: Step) -> Result:
        if isinstance(step, Phase):
            run_phase(step)
            return {}
        if isinstance(step, Pass):
            return step.statistic(method.features(images), labels, torch.ones(len(labels)))
        if isinstance(step, Collect):
            return {"values": step.function(images), "labels": labels}
        assert isinstance(step, Solve)
        return step.function()

    method.eval()
    try:
        step = next(learning)
        while True:
            step = learning.send(perform(step))
    except StopIteration:
        method.tasks.append(classes)
