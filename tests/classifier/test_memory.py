"""What is remembered of pictures: counts that add up, Gaussians that merge exactly, and a bounded number held back."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from head_steps import small
from hypothesis import given
from own_worlds import drawings, new_model
from torch import Tensor

from clare.classifier.classifier import load
from clare.classifier.memory import MAX_HELD_BACK, Memory
from clare.classifier.pictures import Pictures
from clare.heads.statistics import class_means, class_sums, covariances, gaussian_factors, merged
from clare.methods.state import learnt_tensors


def sums_of(features: Tensor) -> dict[str, Tensor]:
    """Return the sums of features of one class."""
    num_images = len(features)
    return class_sums(features, torch.zeros(num_images, dtype=torch.int64), torch.ones(num_images), 1, outer=True)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.9]), st.integers(2, 30), st.integers(1, 30))
def test_merged_gaussians_are_those_of_all_pictures(seed: int, shrinkage: float, num_old: int, num_new: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = 3 + torch.randn(num_old + num_new, 5, generator=generator, dtype=torch.float64)
    old, new = sums_of(features[:num_old]), sums_of(features[num_old:])
    factors = gaussian_factors(old, shrinkage)
    together = merged(old["count"], class_means(old), covariances(class_means(old), factors, shrinkage), new)
    expected = sums_of(features)
    for name in expected:
        torch.testing.assert_close(together[name], expected[name], rtol=1e-6, atol=1e-6)


def test_a_wholly_shrunk_gaussian_is_round() -> None:
    features = torch.tensor([[0.0, 0.0], [2.0, 4.0]], dtype=torch.float64)
    sums = sums_of(features)
    found = covariances(class_means(sums), gaussian_factors(sums, 1.0), 1.0)
    torch.testing.assert_close(found, 2.5 * torch.eye(2, dtype=torch.float64)[None])


def test_counts_grow_and_shrink_by_class() -> None:
    memory = Memory.empty(0, 0).grown(2, 3).added(torch.tensor([1]), torch.tensor([4.0], dtype=torch.float64))
    assert memory.counts.tolist() == [0, 4]
    memory = memory.grown(3, 3).holding(torch.eye(3), torch.tensor([0, 1, 2]))
    smaller = memory.without(1)
    assert smaller.counts.tolist() == [0, 0]
    assert smaller.labels.tolist() == [0, 1]
    assert smaller.held.tolist() == [[1, 0, 0], [0, 0, 1]]
    wider = memory.grown(3, 7)
    assert wider.counts.tolist() == [0, 4, 0]
    assert wider.held.shape == (0, 7)


def test_of_each_class_the_newest_held_back_pictures_stay() -> None:
    number = MAX_HELD_BACK + 10
    features = torch.arange(float(number))[:, None]
    labels = torch.zeros(number, dtype=torch.int64)
    labels[3] = 1
    memory = Memory.empty(2, 1).holding(features, labels)
    assert memory.held.squeeze(1).tolist() == [3, *range(10, number)]
    assert memory.labels.tolist() == [1] + [0] * MAX_HELD_BACK
    assert len(Memory.empty(2, 1).holding(features[:0], labels[:0]).held) == 0


def test_a_memory_is_saved_with_the_model_and_may_be_missing() -> None:
    memory = Memory.empty(2, 3).holding(torch.ones(1, 3), torch.tensor([1]))
    again = Memory.from_tensors(memory.tensors(), 2)
    assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in memory.tensors().items())
    assert Memory.from_tensors({"head.rows": torch.zeros(1)}, 4).counts.tolist() == [0, 0, 0, 0]


def four(seed: int) -> dict[str, list[object]]:
    """Return four pictures of cat and dog, too few for one to be held back."""
    return drawings("cat", "dog", number=4, seed=seed)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["prototype", "aligned", "discriminant", "quadratic", "ridge"])
def test_pictures_in_two_lots_give_the_statistics_of_all_at_once(tmp_path: Path, kind: str) -> None:
    models = []
    for name in ("parts", "whole"):
        (tmp_path / name).mkdir()
        model = new_model(tmp_path / name, head=small(kind))
        if name == "parts":
            model.learn(four(1), mode="quick")
            model.learn(four(2), mode="update")
            model.learn({"dog": four(3)["dog"]}, mode="update")
        else:
            lots = [four(1), four(2), {"cat": [], "dog": four(3)["dog"]}]
            together = {key: [image for lot in lots for image in lot[key]] for key in ("cat", "dog")}
            # A split folder in memory: everything is learnt from, as the parts above were.
            reader = model.reader()
            pixels = {key: [reader.image(image) for image in images] for key, images in together.items()}  # type: ignore[arg-type]
            model.learn(Pictures(pixels, {"cat": [], "dog": []}), mode="quick")
        models.append(model)
    parts, whole = models
    assert [info.num_images for info in parts.classes] == [info.num_images for info in whole.classes] == [8, 12]
    kept = {
        "aligned": ("head.means", "head.factors"),
        "discriminant": ("head.means", "head.counts", "head.scatter"),
        "quadratic": ("head.means", "head.counts", "head.scatter"),
        "ridge": ("head.means", "head.counts", "head.sums", "head.gram"),
    }
    for name in kept.get(kind, ("head.rows",)):
        torch.testing.assert_close(
            learnt_tensors(parts.parts.method)[name],
            learnt_tensors(whole.parts.method)[name],
            rtol=1e-3,
            atol=1e-4,
            msg=name,
        )
    tensors = [load(model.path, device="cpu")._state.memory for model in models]
    assert torch.equal(tensors[0].counts, tensors[1].counts)
    assert parts.capacity == whole.capacity
