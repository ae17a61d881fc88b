"""The ledger knows who owns what, before and after it is saved."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clare.sparse.ledger import Ledger


def masks_of(owners: list[int], num_tasks: int) -> list[Tensor]:
    """Return one mask per task from the owner of each coordinate; an owner beyond the tasks is nobody."""
    owner = torch.tensor(owners)
    return [owner == task for task in range(num_tasks)]


@settings(deadline=None)
@given(owners=st.lists(st.integers(0, 4), min_size=1, max_size=40), num_tasks=st.integers(0, 4))
def test_claims_come_back_as_they_were_made(owners: list[int], num_tasks: int) -> None:
    ledger = Ledger(len(owners))
    masks = masks_of(owners, num_tasks)
    for task, mask in enumerate(masks):
        ledger.claim(mask, torch.arange(len(owners)) + 100.0 * task)
    for task, mask in enumerate(masks):
        coordinates, values = ledger.claim_of(task)
        assert coordinates.tolist() == mask.nonzero().squeeze(1).tolist()
        assert torch.equal(values, coordinates + 100.0 * task)
    assert ledger.lengths == [int(mask.sum()) for mask in masks]
    assert ledger.free.tolist() == [owner >= num_tasks for owner in owners]
    assert ledger.num_free == sum(owner >= num_tasks for owner in owners)
    assert ledger.num_coordinates == len(owners)


def test_a_claim_is_a_copy() -> None:
    ledger = Ledger(3)
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    ledger.claim(torch.tensor([True, False, True]), values)
    with torch.no_grad():
        values.zero_()
    assert ledger.claim_of(0)[1].tolist() == [1.0, 3.0]
    assert not ledger.values.requires_grad


def test_overlapping_claims_keep_both_values() -> None:
    ledger = Ledger(3)
    ledger.claim(torch.tensor([True, True, False]), torch.tensor([1.0, 2.0, 3.0]))
    ledger.claim(torch.tensor([False, True, True]), torch.tensor([4.0, 5.0, 6.0]))
    assert [part.tolist() for part in ledger.claim_of(0)] == [[0, 1], [1.0, 2.0]]
    assert [part.tolist() for part in ledger.claim_of(1)] == [[1, 2], [5.0, 6.0]]
    assert ledger.num_free == 0


def test_an_empty_claim_counts_as_a_task() -> None:
    ledger = Ledger(2)
    ledger.claim(torch.tensor([False, False]), torch.tensor([1.0, 2.0]))
    ledger.claim(torch.tensor([False, True]), torch.tensor([1.0, 2.0]))
    assert ledger.lengths == [0, 1]
    assert ledger.claim_of(0)[0].tolist() == []
    assert ledger.claim_of(1)[0].tolist() == [1]
    assert ledger.free.tolist() == [True, False]


@settings(deadline=None, max_examples=50)
@given(owners=st.lists(st.integers(0, 3), min_size=1, max_size=30), num_others=st.integers(0, 3))
def test_a_resized_ledger_takes_the_saved_tensors(owners: list[int], num_others: int) -> None:
    saved = Ledger(len(owners))
    for mask in masks_of(owners, 3):
        saved.claim(mask, torch.randn(len(owners), generator=torch.Generator().manual_seed(0)))
    loaded = Ledger(len(owners))
    for _ in range(num_others):
        loaded.claim(loaded.free, torch.zeros(len(owners)))
    loaded.resize(saved.lengths)
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded.free, saved.free)
    for task in range(3):
        for part, expected in zip(loaded.claim_of(task), saved.claim_of(task), strict=True):
            assert torch.equal(part, expected)
    loaded.lengths.append(0)
    assert len(saved.lengths) == 3


def test_tensors_of_another_size_are_not_taken() -> None:
    saved, loaded = Ledger(4), Ledger(4)
    saved.claim(torch.tensor([True, False, True, False]), torch.zeros(4))
    with pytest.raises(RuntimeError, match="size mismatch"):
        loaded.load_state_dict(saved.state_dict())
