"""Prototypes in many subspaces, synthesised and weighed, on numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clare.heads.subspaces import (
    subspace_weights,
    synthesise,
    task_of_classes,
    weighted_cosines,
    whole_cosines,
)

CPU = torch.device("cpu")
E = math.e


def test_every_class_has_its_task() -> None:
    assert task_of_classes([1, 3, 2], CPU).tolist() == [0, 1, 1, 1, 2, 2]
    assert task_of_classes([], CPU).tolist() == []


def test_an_old_class_is_put_into_a_new_subspace_by_its_similarity_to_the_new_classes() -> None:
    """In subspace 0 the old class points as the first new one does, and stands square to the second."""
    prototypes = torch.tensor([[[1.0, 0.0], [9.0, 9.0]], [[3.0, 0.0], [2.0, 0.0]], [[0.0, 2.0], [0.0, 4.0]]])
    placed = synthesise(prototypes, [1, 2])
    torch.testing.assert_close(placed[0, 1], torch.tensor([2 * E, 4.0]) / (E + 1))
    placed[0, 1] = prototypes[0, 1]
    assert torch.equal(placed, prototypes)


def test_only_tasks_with_an_exact_prototype_in_a_subspace_take_part() -> None:
    """Three tasks of 1, 2 and 1 classes with orthogonal or equal directions in each class's own subspace."""
    zero = [0.0, 0.0]
    prototypes = torch.tensor(
        [
            [[1.0, 0.0], zero, zero],
            [[0.0, 1.0], [1.0, 1.0], zero],
            [[2.0, 0.0], [5.0, -5.0], zero],
            [[0.0, 7.0], [3.0, 3.0], [6.0, 8.0]],
        ]
    )
    placed = synthesise(prototypes, [1, 2, 1])
    # Cosines of class 0 in subspace 0 are 0, 1, 0; its subspace 1 is made of tasks 1 and 2, its subspace 2 of task 2.
    expected = (torch.tensor([1.0, 1.0]) + E * torch.tensor([5.0, -5.0]) + torch.tensor([3.0, 3.0])) / (E + 2)
    torch.testing.assert_close(placed[0, 1], expected)
    for old in range(3):
        torch.testing.assert_close(placed[old, 2], torch.tensor([6.0, 8.0]))


def by_definition(prototypes: Tensor, sizes: list[int]) -> Tensor:
    """Synthesise class by class and subspace by subspace."""
    result, tasks = prototypes.clone(), task_of_classes(sizes, CPU)
    for label, task in enumerate(tasks.tolist()):
        for subspace in range(task + 1, len(sizes)):
            others = tasks >= subspace
            cosines = torch.cosine_similarity(prototypes[label, task], prototypes[others, task], dim=1)
            result[label, subspace] = cosines.softmax(0) @ prototypes[others, subspace]
    return result


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 1000))
def test_tasks_of_any_size_follow_the_definition(sizes: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (sum(sizes), len(sizes), 3)
    prototypes = torch.randn(shape, generator=generator, dtype=torch.float64)
    placed = synthesise(prototypes, sizes)
    torch.testing.assert_close(placed, by_definition(prototypes, sizes))
    # What was synthesised before is never read: doing it again changes nothing.
    assert torch.equal(synthesise(placed, sizes), placed)


def test_a_class_counts_fully_in_its_own_subspace_and_the_others_share_the_rest() -> None:
    assert subspace_weights([2], 0.1, CPU).tolist() == [[1.0], [1.0]]
    expected = torch.tensor([[1.0, 0.05, 0.05], [0.05, 1.0, 0.05], [0.05, 1.0, 0.05], [0.05, 0.05, 1.0]])
    torch.testing.assert_close(subspace_weights([1, 2, 1], 0.1, CPU), expected)
    assert subspace_weights([], 0.1, CPU).shape == (0, 0)


def test_logits_by_hand() -> None:
    features = torch.tensor([[[3.0, 4.0], [0.0, 5.0]]])
    prototypes = torch.tensor([[[1.0, 0.0], [3.0, 4.0]], [[3.0, 0.0], [2.0, 0.0]], [[0.0, 2.0], [0.0, 4.0]]])
    weights = subspace_weights([1, 2], 0.1, CPU)
    torch.testing.assert_close(
        weighted_cosines(features, prototypes, weights),
        torch.tensor([[0.6 + 0.1 * 0.8, 0.0 + 0.1 * 0.6, 1.0 + 0.1 * 0.8]]),
    )
    # One cosine over both: products 3 + 20, 9 + 0, 8 + 20; norms sqrt(50), and sqrt(26), sqrt(13), sqrt(20).
    whole = torch.tensor([[23 / math.sqrt(26), 9 / math.sqrt(13), 28 / math.sqrt(20)]]) / math.sqrt(50)
    torch.testing.assert_close(whole_cosines(features, prototypes), whole)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_each_subspace_is_normalised_by_itself(factor: float) -> None:
    generator = torch.Generator().manual_seed(0)
    features, prototypes = torch.randn(2, 3, 5, generator=generator), torch.randn(4, 3, 5, generator=generator)
    weights = subspace_weights([1, 2, 1], 0.5, CPU)
    louder = features * torch.tensor([1.0, factor, 1.0])[:, None]
    expected = weighted_cosines(features, prototypes, weights)
    torch.testing.assert_close(weighted_cosines(louder, prototypes, weights), expected)
    assert not torch.allclose(whole_cosines(louder, prototypes), whole_cosines(features, prototypes))
