"""Histograms of movement and counts per block, by hand and against their definitions."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clare.sparse.diagnosis import NUM_BINS, count_per_block, movement_histogram, smallest

MOVEMENTS = st.lists(st.one_of(st.just(0.0), st.floats(2**-40, 8.0, width=32)), max_size=60)


def test_bins_by_hand() -> None:
    # From 1e-9 to 1e-1 in 40 bins: five bins to a decade.
    found = movement_histogram(torch.tensor([0.0, 1e-1, 5e-10, 2e-9, 0.0, 1.5e-5, 1.2e-5, 9e-2]), threshold=1.5e-5)
    assert found["num_unmoved"] == 2
    assert found["threshold"] == 1.5e-5
    counts = {index: count for index, count in enumerate(found["counts"]) if count}
    # What is smaller than the first edge counts in the first bin, the largest in the last.
    assert counts == {0: 1, 1: 1, 20: 2, 39: 2}
    assert found["edges"][20] == pytest.approx(1e-5)


@given(MOVEMENTS)
def test_every_movement_is_counted_once_and_edges_rise_by_equal_ratios(movement: list[float]) -> None:
    found = movement_histogram(torch.tensor(movement))
    edges = np.array(found["edges"])
    assert len(found["counts"]) == len(edges) - 1 == NUM_BINS
    assert sum(found["counts"]) + found["num_unmoved"] == len(movement)
    assert found["num_unmoved"] == movement.count(0.0)
    np.testing.assert_allclose(np.diff(np.log(edges)), math.log(edges[-1] / 1e-9) / NUM_BINS)
    assert edges[0] == 1e-9
    assert edges[-1] == max([*movement, 1e-8])
    moved = np.clip([each for each in movement if each > 0], 1e-9, None)
    assert found["counts"] == np.histogram(moved, edges)[0].tolist()


def test_a_histogram_is_json() -> None:
    found = movement_histogram(torch.rand(100), None)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("movement", [torch.zeros(5), torch.zeros(0)])
def test_nothing_moved(movement: torch.Tensor) -> None:
    found = movement_histogram(movement)
    assert (sum(found["counts"]), found["num_unmoved"]) == (0, len(movement))
    assert found["edges"][-1] == pytest.approx(1e-8)


def test_the_threshold_is_the_smallest_chosen_score() -> None:
    scores = torch.tensor([0.5, 0.25, 2.0])
    assert smallest(scores, torch.tensor([True, False, True])) == 0.5
    assert smallest(scores, torch.zeros(3, dtype=torch.bool)) is None


def test_coordinates_are_counted_in_their_blocks() -> None:
    assert count_per_block(torch.tensor([0, 9, 10, 29, 31]), 4, [10] * 4) == [2, 1, 1, 1]
    assert count_per_block(torch.tensor([], dtype=torch.long), 2, [3, 3]) == [0, 0]
    assert count_per_block(torch.tensor([0, 1, 2, 5, 6]), 3, [2, 4, 1]) == [2, 2, 1]
    # An adapter of two blocks of ten coordinates, and one of two blocks of three beside it.
    assert count_per_block(torch.tensor([0, 9, 10, 19, 20, 22, 23, 25]), 2, [10, 10, 3, 3]) == [4, 4]
