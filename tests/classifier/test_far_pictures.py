"""Pictures far from what the backbone was pretrained on, taught with `--method clare` as it comes."""

from pathlib import Path

import pytest

from clare.registry import load_file

FILE = Path(__file__).parents[2] / "scripts/measure_far_pictures.py"


@pytest.mark.slow
def test_a_lesson_of_them_costs_an_earlier_one_at_most_ten_points() -> None:
    found = load_file(FILE, "which a test reads").teach(30, 8, {})
    (first,), (kept, _) = found["right"]
    assert first > 0.9 * found["of"]
    assert kept >= first - 0.1 * found["of"]
