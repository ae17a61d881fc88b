"""The memory of input directions against the official code's numbers, by hand, and in general."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lora_golden import Golden, close, load_golden
from torch import Tensor

from clare.methods._shared.dual_gpm import Basis, InputMemory, first_basis, next_basis


@pytest.fixture(scope="module")
def golden() -> Golden:
    return load_golden("inflora")


def projector(basis: Basis) -> Tensor:
    return basis.columns @ basis.columns.T


def check(basis: Basis, golden: Golden, prefix: str) -> None:
    """Assert that a basis spans what was recorded."""
    assert basis.columns.shape == golden[f"{prefix}.basis"].shape
    assert basis.is_complement == bool(golden[f"{prefix}.retain"])
    close(projector(basis), golden[f"{prefix}.projector"])


@pytest.mark.parametrize("layer", range(4))
def test_three_tasks_are_those_of_the_official_code(golden: Golden, layer: int) -> None:
    basis = None
    for task, threshold in enumerate((0.9, 0.925, 0.95)):
        prefix = f"dualgpm.task{task}.layer{layer}"
        moment = golden[f"{prefix}.moment"].double()
        basis = first_basis(moment, threshold) if basis is None else next_basis(basis, moment, threshold)
        check(basis, golden, prefix)


def test_the_recorded_layers_flip_shrink_and_stay(golden: Golden) -> None:
    def history(layer: int) -> list[tuple[int, bool]]:
        names = [f"dualgpm.task{task}.layer{layer}" for task in range(3)]
        return [(golden[f"{name}.basis"].shape[1], bool(golden[f"{name}.retain"])) for name in names]

    assert history(0) == [(1, False), (2, False), (5, False)]
    assert history(1) == [(5, False), (3, True), (2, True)]
    assert history(2) == [(1, False), (4, False), (5, True)]
    assert history(3) == [(1, False), (2, False), (2, False)]


def test_a_first_task_that_uses_half_keeps_the_side_that_is_free(golden: Golden) -> None:
    moment = golden["dualgpm.first_retain.moment"].double()
    basis = first_basis(moment, 0.95)
    check(basis, golden, "dualgpm.first_retain")
    official = golden["official.dualgpm.first_retain.projector"]
    torch.testing.assert_close(official.double(), torch.eye(12).double() - projector(basis), rtol=0, atol=1e-5)


def diagonal(*values: float) -> Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def spanned(basis: Basis) -> list[int]:
    """Return the axes that a basis spans, which must be nothing else."""
    diagonal_part = projector(basis).diagonal()
    torch.testing.assert_close(projector(basis), torch.diag(diagonal_part.round()))
    return diagonal_part.round().nonzero().squeeze(1).tolist()


def test_the_first_task_by_hand() -> None:
    # Shares of the squares: 0.5, 0.3, 0.12, 0.08, nothing, nothing.
    moment = diagonal(*(math.sqrt(share) for share in (0.5, 0.3, 0.12, 0.08)), 0, 0)
    # The direction that crosses the threshold is not kept, but one always is.
    assert spanned(first_basis(moment, 0.85)) == [0, 1]
    assert spanned(first_basis(moment, 0.4)) == [0]
    complement = first_basis(moment, 0.95)
    assert complement.is_complement
    assert spanned(complement) == [3, 4, 5]


def test_later_tasks_by_hand() -> None:
    moment = diagonal(*(math.sqrt(share) for share in (0.5, 0.3, 0.12, 0.08)), 0, 0)
    first = Basis(torch.eye(6, dtype=torch.float64)[:, :1], False)
    # The direction that crosses the threshold is taken now: 0.5, 0.8, 0.92.
    assert spanned(next_basis(first, moment, 0.6)) == [0, 1]
    assert spanned(next_basis(first, moment, 0.85)) == [0, 1, 2]
    assert spanned(next_basis(first, moment, 0.45)) == [0]
    # Four of six is more than half: the other two are kept instead.
    flipped = next_basis(first, moment, 0.95)
    assert flipped.is_complement
    assert spanned(flipped) == [4, 5]
    # Of a complement with shares 0.3 and 0.12 the larger is dropped while 0.2 or more is left.
    free = Basis(torch.eye(6, dtype=torch.float64)[:, 1:3], True)
    assert spanned(next_basis(free, moment, 0.8)) == [2]
    assert spanned(next_basis(free, moment, 0.55)) == [1, 2]
    assert spanned(next_basis(free, moment, 0.95)) == []


def random_moment(width: int, rank: int, generator: torch.Generator) -> Tensor:
    tokens = torch.randn(4 * rank, rank, generator=generator, dtype=torch.float64)
    mixed = tokens @ torch.randn(rank, width, generator=generator, dtype=torch.float64)
    return mixed.T @ mixed / len(mixed)


@given(
    width=st.integers(2, 13),
    ranks=st.lists(st.integers(1, 13), min_size=1, max_size=4),
    threshold=st.floats(0.05, 0.99),
    seed=st.integers(0, 1000),
)
def test_bases_are_orthonormal_small_and_hold_their_share(
    width: int, ranks: list[int], threshold: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    basis = None
    for task, rank in enumerate(ranks):
        moment = random_moment(width, rank, generator)
        basis = first_basis(moment, threshold) if basis is None else next_basis(basis, moment, threshold)
        columns = basis.columns
        assert columns.shape[1] <= width / 2
        torch.testing.assert_close(columns.T @ columns, torch.eye(columns.shape[1]).double(), rtol=0, atol=1e-8)
        if task:
            free_share = basis.free_part(moment).square().sum() / moment.square().sum()
            assert float(free_share) <= 1 - threshold + 1e-8


def test_the_memory_of_all_blocks_survives_a_copy() -> None:
    generator = torch.Generator().manual_seed(0)
    memory = InputMemory(3, 8)
    assert [basis.columns.shape for basis in memory.bases()] == [(8, 0)] * 3
    moments = torch.stack([random_moment(8, rank, generator) for rank in (1, 3, 8)])
    memory.load(memory.after(moments, 0.9, is_first=True))
    expected = [first_basis(moment, 0.9) for moment in moments]
    for ours, basis in zip(memory.bases(), expected, strict=True):
        assert ours.is_complement == basis.is_complement
        torch.testing.assert_close(ours.columns, basis.columns, rtol=0, atol=1e-6)
    # Only as many columns are stored as there are.
    assert memory.columns.shape == (8, sum(basis.columns.shape[1] for basis in expected))
    copy = InputMemory(3, 8)
    copy.resize(**memory.structure())
    copy.load_state_dict(memory.state_dict())
    again = torch.stack([random_moment(8, 2, generator) for _ in range(3)])
    one, other = (each.after(again, 0.95, is_first=False) for each in (memory, copy))
    assert all(torch.equal(one[name], other[name]) for name in one)
