"""Probabilities that fit pictures held back: the factor on logits, and how far answers are from being as sure."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clare.classifier.certainty import calibration_error, fit_scale
from clare.seeds import generator_at


def drawn(num_pictures: int, num_classes: int, scale: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits, and labels that follow their softmax under a factor."""
    generator = generator_at(seed, "logits")
    logits = torch.randn(num_pictures, num_classes, generator=generator)
    return logits, torch.multinomial((scale * logits).softmax(1), 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_factor_is_found_that_labels_were_drawn_with(scale: float) -> None:
    assert fit_scale(*drawn(20_000, 6, scale)) == pytest.approx(scale, rel=0.05)


@given(st.floats(1e-6, 1e6), st.floats(-1e3, 1e3), st.integers(0, 50))
def test_units_and_origin_of_the_logits_do_not_matter(unit: float, origin: float, seed: int) -> None:
    logits, labels = drawn(40, 4, 2.0, seed)
    logits = logits.double()
    assert fit_scale(logits * unit + unit * origin, labels) * unit == pytest.approx(fit_scale(logits, labels), rel=1e-4)


@pytest.mark.parametrize("num_pictures", [4, 40, 400])
def test_a_few_right_answers_make_no_certainty(num_pictures: int) -> None:
    labels = torch.arange(num_pictures) % 3
    logits = 0.01 * torch.nn.functional.one_hot(labels, 3).float()
    probability = (fit_scale(logits, labels) * logits).softmax(1).amax(1)
    assert probability.tolist() == pytest.approx([(num_pictures + 1) / (num_pictures + 2)] * num_pictures, rel=1e-6)


def test_answers_that_are_mostly_wrong_are_hardly_told_apart() -> None:
    logits, labels = drawn(100, 3, 1.0)
    probabilities = (fit_scale(logits, logits.argmin(1)) * logits).softmax(1)
    assert probabilities.amax() < 0.34
    assert fit_scale(torch.zeros(5, 3), labels[:5]) == 1.0


def test_the_error_is_nothing_where_answers_are_as_sure_as_they_are_right() -> None:
    certainty = torch.tensor([0.75] * 4 + [0.5] * 2)
    is_right = torch.tensor([True, True, True, False, True, False])
    assert calibration_error(certainty, is_right) == pytest.approx(0)
    assert calibration_error(torch.ones(4), torch.tensor([True, False, False, False])) == pytest.approx(0.75)


def test_bins_do_not_make_up_for_each_other() -> None:
    certainty = torch.tensor([0.95, 0.95, 0.15, 0.15])
    assert calibration_error(certainty, torch.tensor([False, False, True, True])) == pytest.approx(0.9)
