"""Ridge regression on numbers one can check, and the packed Gram matrix."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clare.errors import ModelError
from clare.heads import ridge as of_ridge
from clare.heads.ridge import (
    CANDIDATES,
    add_sums,
    best_ridge,
    pack_symmetric,
    projected,
    ridge_errors,
    solve_ridge,
    unpack_symmetric,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def test_projected_by_hand() -> None:
    projection = torch.tensor([[1.0, -1.0, 0.5], [0.0, 2.0, 1.0]])
    assert projected(torch.tensor([[2.0, 1.0], [0.0, -1.0]]), projection).tolist() == [[2, 0, 2], [0, 0, 0]]


def test_a_regression_by_hand() -> None:
    """One feature with values 1 and 2 for the classes 0 and 1: G = 5, Q = (1, 2), and a ridge of 5 halves the rows."""
    gram, sums = torch.zeros(1, 1), torch.zeros(2, 1)
    add_sums(gram, sums, torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]), torch.eye(1))
    assert gram.tolist() == [[5.0]]
    assert sums.tolist() == [[1.0], [2.0]]
    rows, used = solve_ridge(gram, sums, 5.0)
    torch.testing.assert_close(rows, torch.tensor([[0.1], [0.2]]))
    assert used == 5.0


def test_errors_of_ridges_by_hand() -> None:
    """Four images with feature 1 of one class fit w = 4 / (4 + ridge); the fifth, with feature 2, is off by 2w - 1."""
    features = torch.tensor([[1.0], [1.0], [1.0], [1.0], [2.0]], dtype=torch.float64)
    expected = [(8 / (4 + ridge) - 1) ** 2 for ridge in CANDIDATES]
    for projection in (torch.ones(1, 1).double(), torch.ones(1, 9).double() / 3):
        errors = ridge_errors(features, torch.zeros(5, dtype=torch.long), 1, projection)
        torch.testing.assert_close(errors, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-9)
    # The error is zero at a ridge of 4; 1 and 10 are the candidates beside it.
    assert best_ridge(errors) == 10.0


def test_both_ways_to_the_errors_agree() -> None:
    """More random features than images that fit, or fewer: the systems differ, the errors are the closed form's."""
    features, labels = draw(50, 6), torch.randint(3, (50,), generator=generator(1))
    targets = torch.nn.functional.one_hot(labels, 3).double()
    for size in (8, 39, 40, 41, 90):
        projection = draw(6, size, seed=2)
        hidden = (features @ projection).clamp(min=0)
        fit, judged = hidden[:40], hidden[40:]
        expected = []
        for ridge in CANDIDATES[6:]:
            weight = torch.linalg.solve(fit.T @ fit + ridge * torch.eye(size), fit.T @ targets[:40])
            expected.append((judged @ weight - targets[40:]).square().mean())
        errors = ridge_errors(features, labels, 3, projection)
        torch.testing.assert_close(errors[6:], torch.stack(expected), rtol=1e-7, atol=1e-9)


def test_the_first_of_equal_errors_wins() -> None:
    errors = torch.full((17,), 2.0)
    errors[[5, 9]] = 1.0
    assert best_ridge(errors) == CANDIDATES[5]
    assert best_ridge(torch.full((17,), torch.inf)) == CANDIDATES[0]


def test_a_ridge_that_cannot_be_solved_is_never_chosen() -> None:
    """Eight equal images: the smallest ridges vanish beside the sums in single precision."""
    features, labels = torch.full((10, 1), 3e3), torch.arange(10) % 2
    errors = ridge_errors(features, labels, 2, torch.ones(1, 20))
    assert errors[0] == torch.inf
    assert bool(errors[-1].isfinite())


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, projection = draw(23, 4), torch.arange(23) % 3, draw(4, 7, seed=1)
    results = []
    for num_rows in (5, 100):
        monkeypatch.setattr(of_ridge, "NUM_ROWS", num_rows)
        gram, sums = torch.zeros(7, 7).double(), torch.zeros(3, 7).double()
        add_sums(gram, sums, features, labels, projection)
        results.append((gram, sums))
    hidden = (features @ projection).clamp(min=0)
    for gram, sums in results:
        torch.testing.assert_close(gram, hidden.T @ hidden)
        torch.testing.assert_close(sums[1], hidden[labels == 1].sum(0))


def test_a_ridge_too_small_is_raised_by_tens() -> None:
    ones = torch.full((6, 6), 1e6)
    rows, used = solve_ridge(ones, torch.ones(2, 6), 1e-8)
    assert 1e-8 < used <= 10
    assert bool(rows.isfinite().all())
    with pytest.raises(ModelError, match=r"no usable sums.*not finite"):
        solve_ridge(torch.full((2, 2), -torch.inf), torch.ones(1, 2), 1.0)


@given(st.integers(1, 9), st.integers(0, 100))
def test_packing_keeps_every_number_once(size: int, seed: int) -> None:
    matrix = draw(size, size, seed=seed)
    matrix = matrix + matrix.T
    packed = pack_symmetric(matrix)
    even = size + size % 2
    assert packed.shape == (even // 2, even + 1)
    assert torch.equal(unpack_symmetric(packed, size), matrix)
    if size == even:
        assert sorted(packed.flatten().tolist()) == sorted(matrix[torch.ones(size, size).tril().bool()].tolist())


def test_packing_by_hand() -> None:
    matrix = torch.tensor([[1, 2, 4, 7], [2, 3, 5, 8], [4, 5, 6, 9], [7, 8, 9, 10]])
    assert pack_symmetric(matrix).tolist() == [[7, 8, 9, 10, 1], [4, 5, 6, 3, 2]]
