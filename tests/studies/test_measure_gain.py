"""What training can gain on frozen features: seven regimes, judged by a head that knows all training images."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from clare.backbones.vit import load_backbone
from clare.methods.base import METHODS
from clare.presets.load import make_experiment


@pytest.fixture(scope="session")
def gain(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("measure_gain")


@pytest.fixture
def scene(gain: ModuleType, tiny_preset: Path) -> Any:
    """Return a stream of three tasks of two classes for clare-plus."""
    overrides = ["method.head.kind=discriminant", "stream.evaluate_on=validation"]
    return gain.set_up(make_experiment(str(tiny_preset), "clare-plus", overrides).model_dump(mode="json"))


@pytest.fixture
def recipe(gain: ModuleType) -> Any:
    """Return a short training on the tasks' own classes."""
    return gain.Recipe("own", 0.5, 1, 8, 0)


@pytest.mark.parametrize("regime", ["joint", "joint-own", "own", "seen", "replay", "first-ten"])
def test_each_regime_moves_the_adapter_and_repeats_to_the_bit(
    gain: ModuleType, scene: Any, recipe: Any, regime: str
) -> None:
    trained = [gain.learnt_values(scene, replace(recipe, regime=regime)) for _ in range(2)]
    assert torch.equal(*trained)
    assert not torch.equal(trained[0], gain.learnt_values(scene, replace(recipe, regime="frozen")))


def test_the_loss_sees_the_classes_of_its_regime(gain: ModuleType, scene: Any, recipe: Any) -> None:
    experiment = scene.experiment
    method = METHODS.get("clare-plus")(load_backbone(experiment.backbone), experiment.method_settings(), 0)
    part = gain.with_all_labels(scene.stream)[1]
    images, labels = gain.ImageSource(scene.context, part, augmented=False).draw(torch.arange(len(part)))
    assert set(labels.tolist()) == {2, 3}
    seen = {}
    for regime in ("own", "seen"):
        trainer = gain.Trainer(scene, method, replace(recipe, regime=regime))
        trainer.loss(images, labels, 1).backward()
        seen[regime] = trainer.rows.grad.abs().sum(1).nonzero().squeeze(1).tolist()
    assert seen == {"own": [2, 3], "seen": [0, 1, 2, 3]}


def test_whitened_features_have_a_round_covariance(gain: ModuleType) -> None:
    features = torch.randn(400, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([5.0, 3, 2, 1, 1, 0.5])
    statistics = gain.Statistics(3, 6, torch.device("cpu"))
    known = statistics.add(features, torch.arange(400) % 2)
    assert known.tolist() == [True, True, False]
    whitening = statistics.whitening()
    spread = whitening.T @ (statistics.scatter / 400) @ whitening
    before = statistics.scatter / statistics.scatter.diagonal().max()
    assert spread.diagonal().min() / spread.diagonal().max() > 5 * before.diagonal().min()


def test_the_buffer_holds_as_many_images_of_every_class(gain: ModuleType, scene: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(gain, "PER_CLASS", 2)
    buffer = gain.buffer_of(gain.with_all_labels(scene.stream)[:2], seed=0)
    assert torch.bincount(buffer.labels).tolist() == [2, 2, 2, 2]
