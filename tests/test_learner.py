"""The library's front door."""

from pathlib import Path

import numpy as np
import pytest
import torch

import clare
from clare.backbones.vit import BackboneSettings, build_embedded
from clare.errors import ClareError, DataError, ModelError, SettingsError
from clare.methods.state import learnt_tensors

TINY = BackboneSettings(weights="random", architecture={"embed_dim": 24, "depth": 2, "num_heads": 2})
QUICK = {"epochs": 4, "probe_epochs": 2, "learning_rate": 0.1}


def drawings(classes: list[str], seed: int, num_images: int = 8) -> dict[str, list[np.ndarray]]:
    """Make images that show a pattern of their class under noise."""
    noise = np.random.RandomState(seed)
    tiles = {name: np.random.RandomState(sum(map(ord, name))).randint(0, 2, (7, 7)) * 200 for name in classes}
    patterns = {name: np.tile(tile, (4, 4)) for name, tile in tiles.items()}
    return {
        name: [(pattern + noise.randint(0, 55, (28, 28))).astype(np.uint8) for _ in range(num_images)]
        for name, pattern in patterns.items()
    }


def make_vit() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_embedded(embed_dim=24, depth=2, num_heads=2)


@pytest.fixture
def taught() -> clare.Learner:
    learner = clare.create(make_vit(), settings=QUICK, transforms={"train": "none"}, device="cpu")
    learner.learn(drawings(["cat", "dog"], seed=1))
    learner.learn(drawings(["bus", "car", "van"], seed=2))
    return learner


def test_learns_tasks_and_names_classes(taught: clare.Learner) -> None:
    assert taught.classes == ["cat", "dog", "bus", "car", "van"]
    examples = drawings(taught.classes, seed=3)
    right = [guess == name for name, images in examples.items() for guess in taught.predict(images)]
    assert np.mean(right) > 0.7
    assert taught.predict(examples["cat"][0]) == taught.predict(examples["cat"])[:1]


def test_probabilities_are_one_row_per_image(taught: clare.Learner) -> None:
    rows = taught.probabilities(drawings(["cat"], seed=4)["cat"])
    assert rows.shape == (8, 5)
    torch.testing.assert_close(rows.sum(1), torch.ones(8))
    assert taught.probabilities([]).shape == (0, 5)


def test_saves_and_loads_bit_identically(taught: clare.Learner, tmp_path: Path) -> None:
    taught.save(tmp_path / "model")
    loaded = clare.load(tmp_path / "model", make_vit(), device="cpu")
    images = drawings(["cat", "van"], seed=5)["van"]
    assert torch.equal(loaded.probabilities(images), taught.probabilities(images))
    more = drawings(["tram"], seed=6)
    taught.learn(more)
    loaded.learn(more)
    assert torch.equal(loaded.probabilities(images), taught.probabilities(images))


def test_a_backbone_built_by_hand_must_be_given_again(taught: clare.Learner, tmp_path: Path) -> None:
    taught.save(tmp_path)
    with pytest.raises(ModelError, match="give it again"):
        clare.load(tmp_path)
    torch.manual_seed(1)
    with pytest.raises(ModelError, match="load the same weights"):
        clare.load(tmp_path, build_embedded(embed_dim=24, depth=2, num_heads=2))


def test_refuses_what_it_cannot_learn_and_stays_as_it_was(taught: clare.Learner) -> None:
    before = {name: tensor.clone() for name, tensor in learnt_tensors(taught.method).items()}
    for dataset, message in (
        (drawings(["cat"], seed=7), "learnt before"),
        ({}, "no images"),
        ({"empty": []}, "no images"),
        ({"full": drawings(["full"], seed=8)["full"], "empty": []}, "'empty' has no training images"),
        ([1, 2], "cannot be learnt"),
    ):
        with pytest.raises(ClareError, match=message):
            taught.learn(dataset)
    assert all(torch.equal(tensor, before[name]) for name, tensor in learnt_tensors(taught.method).items())


def test_says_what_is_wrong_with_a_learner_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean 'clare'"):
        clare.create(TINY, "klare")
    with pytest.raises(SettingsError, match=r"settings\.sparsity"):
        clare.create(TINY, settings={"sparsity": 2})
    with pytest.raises(ModelError, match=r"model\.json is missing"):
        clare.load(tmp_path)
    with pytest.raises(ModelError, match="knows no classes"):
        clare.create(TINY, device="cpu").predict(np.zeros((28, 28), dtype=np.uint8))
    with pytest.raises(DataError, match="no folder"):
        clare.create(TINY, device="cpu").learn(tmp_path / "nowhere")


def test_reads_the_embedded_backbone_by_name(tmp_path: Path) -> None:
    learner = clare.create("quickdraw-vit", "simplecil", device="cpu")
    learner.learn(drawings(["cat", "dog"], seed=1))
    learner.save(tmp_path)
    image = drawings(["cat"], seed=9)["cat"][0]
    assert clare.load(tmp_path, device="cpu").predict(image) == learner.predict(image) == ["cat"]
