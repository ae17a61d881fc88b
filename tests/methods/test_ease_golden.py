"""EASE against numbers that the published code gave: three tasks, with and without the bare backbone's subspace."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clare.backbones.vit import Backbone, build_embedded, freeze
from clare.engine.context import Context
from clare.engine.ranks import Ranks
from clare.engine.step import TrainStep
from clare.heads.subspaces import class_similarity, task_of_classes
from clare.methods.base import bare_features
from clare.methods.ease import Ease, EaseSettings
from clare.steps import Pass, Phase, TaskInfo

GOLDEN = Path(__file__).parents[1] / "golden" / "ease.safetensors"
BATCHES, SIZE, WIDTH = range(3), 3, 32
PARTS = [f"{block}.{part}" for block in range(2) for part in ("down.weight", "down.bias", "up.weight", "up.bias")]
MakeContext = Callable[..., Context]


@cache
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN)


def images(name: str) -> Tensor:
    """Return recorded images as the network saw them."""
    return golden()[name].float() / 32 - 4


def task_images(task: int) -> tuple[Tensor, Tensor]:
    """Return all images of a task and their labels within it."""
    labels = torch.cat([golden()[f"task{task}.step{step}.labels"] for step in BATCHES])
    return torch.cat([images(f"task{task}.step{step}.images") for step in BATCHES]), labels - SIZE * task


def flat_adapter(prefix: str) -> Tensor:
    """Return a recorded adapter as one row."""
    return torch.cat([golden()[f"{prefix}.adapter.{part}"].flatten() for part in PARTS])


def close(ours: Tensor, name: str) -> None:
    """Assert that a tensor is the recorded one."""
    torch.testing.assert_close(ours.detach(), golden()[name].reshape(ours.shape), rtol=1e-5, atol=1e-5)


def make_ease(**changes: object) -> Ease:
    """Return EASE with the recorded settings on the recorded backbone."""
    vit = build_embedded(in_chans=3, embed_dim=WIDTH, depth=2, num_heads=4)
    vit.load_state_dict({key[9:]: value for key, value in golden().items() if key.startswith("backbone.")})
    backbone: Backbone = freeze(vit, None)
    settings = {
        "adapter": {"bottleneck": 8, "scale": 2.0, "dropout": 0},
        "learning_rate": 0.5,
        "weight_decay": 5e-3,
        "chunk_size": 2,
        **changes,
    }
    return Ease(backbone, EaseSettings.model_validate(settings), 0)


def train(ranks: Ranks, method: Ease, phase: Phase, task: int) -> None:
    """Start where the record starts, take its three steps, and compare what comes before and after each."""
    method.adapters.current.data.copy_(flat_adapter(f"task{task}.init"))
    method.head.block.data.copy_(golden()[f"task{task}.init.proxy.weight"])
    assert float(method.head.factor) == 1
    step = TrainStep(ranks, phase)
    step.optimizer.set_rate(phase.optimizer.learning_rate)
    method.train()
    for parameter in step.parameters:
        parameter.requires_grad_(True)
    for index in BATCHES:
        inputs, name = images(f"task{task}.step{index}.images"), f"task{task}.step{index}"
        features = method.adapters.features(inputs, method.adapters.current[None], 1)[:, 0]
        close(method.head.block_logits(features), f"{name}.logits")
        step.total.zero_()
        step(inputs, golden()[f"{name}.labels"] - SIZE * task, torch.ones(8), 8)
        close(step.total / 8, f"{name}.loss")
    for parameter in step.parameters:
        parameter.requires_grad_(False)
    method.eval()
    torch.testing.assert_close(method.adapters.current.data, flat_adapter(f"task{task}.after"), rtol=1e-5, atol=1e-5)
    close(method.head.block, f"task{task}.after.proxy.weight")
    close(method.head.factor, f"task{task}.after.proxy.sigma")


@torch.no_grad()
def learn(ranks: Ranks, method: Ease) -> Iterator[int]:
    """Learn the recorded tasks, and yield each when it is learnt."""
    for task in range(3):
        classes = tuple(f"class {task}.{label}" for label in range(SIZE))
        learning = method.learn(TaskInfo(task, classes))
        phase = next(learning)
        assert isinstance(phase, Phase)
        train(ranks, method, phase, task)
        sweep = learning.send({})
        assert isinstance(sweep, Pass)
        inputs, labels = task_images(task)
        with pytest.raises(StopIteration):
            learning.send(sweep.statistic(method.features(inputs), labels, torch.ones(len(labels))))
        method.tasks.append(classes)
        yield task


def test_training_features_prototypes_and_logits_are_the_published_codes(context: MakeContext) -> None:
    method = make_ease()
    for task in learn(context().ranks, method):
        features = method.features(task_images(task)[0]).view(24, -1, WIDTH)
        for subspace in range(task + 1):
            close(features[:, subspace], f"task{task}.features.{subspace}")
        close(bare_features(method, task_images(task)[0]), f"task{task}.features.ptm")
        close(method.prototypes.flatten(1), f"task{task}.prototypes")
        close(method.features(images("test.images")), f"task{task}.test.features")
        close(method(images("test.images")), f"task{task}.test.logits")


def test_the_bare_subspace_is_the_published_codes(context: MakeContext) -> None:
    method = make_ease(bare_subspace=True)
    for task in learn(context().ranks, method):
        close(method.prototypes[:, 0], f"task{task}.ptm.prototypes")
        close(method.prototypes[:, 1:].flatten(1), f"task{task}.prototypes")
        inputs = images("test.images")
        close(method.features(inputs)[:, :WIDTH], f"task{task}.ptm.test.features")
        close(method(inputs), f"task{task}.ptm.test.logits")
        close(method.classify(method.features(inputs)), f"task{task}.ptm.test.logits")


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(("changes", "record"), [({"cross_weight": 1.0}, "_alpha1"), ({"reweighted": False}, "_plain")])
def test_other_weights_are_the_published_codes(
    context: MakeContext, changes: dict[str, object], record: str, bare: bool
) -> None:
    method = make_ease(bare_subspace=bare, **changes)
    for task in learn(context().ranks, method):
        if task > 0 or record == "_plain":
            close(method(images("test.images")), f"task{task}{'.ptm' if bare else ''}.test.logits{record}")


def test_similarities_are_the_published_codes() -> None:
    for task, own in ((1, 0), (2, 0), (2, 1)):
        prototypes = golden()[f"task{task}.prototypes"].view(SIZE * (task + 1), task + 1, WIDTH)
        first, last = SIZE * own, SIZE * (own + 1)
        tasks = task_of_classes([SIZE] * (task + 1), torch.device("cpu"))[last:]
        allowed = tasks >= torch.arange(own + 1, task + 1)[:, None]
        ours = class_similarity(prototypes[first:last, own], prototypes[last:, own], allowed)
        for index, subspace in enumerate(range(own + 1, task + 1)):
            close(ours[index][:, allowed[index]], f"task{task}.similarity.{own}.{subspace}")
