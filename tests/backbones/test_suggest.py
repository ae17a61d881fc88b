"""Backbones that suit a machine."""

import pytest
import timm
import torch

from clare.backbones import suggest
from clare.backbones.families import family_of
from clare.backbones.hub import outline
from clare.backbones.suggest import SUGGESTED, Suggestion, best, num_operations, suggestions

SMALL, MIDDLE, LARGE = (Suggestion(name, size, 1000 / size, False) for name, size in (("a", 10), ("b", 40), ("c", 100)))


def test_the_largest_that_is_fast_enough_and_fits_is_best() -> None:
    assert best([SMALL, MIDDLE, LARGE], 10**9) == MIDDLE
    assert best([SMALL, MIDDLE._replace(speed=1.0), LARGE], 10**9) == SMALL
    assert best([SMALL, MIDDLE, LARGE._replace(speed=20.0)], 400) == LARGE._replace(speed=20.0)
    assert best([SMALL, MIDDLE, LARGE._replace(speed=20.0)], 399) == MIDDLE
    assert best([SMALL, MIDDLE, LARGE], 0) == SMALL


def test_all_that_are_suggested_work_and_speeds_fall_with_their_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "SECONDS", 0.0)
    found = suggestions(torch.device("cpu"))
    assert [one.name for one in found] == list(SUGGESTED)
    for one in found:
        assert timm.is_model_pretrained(one.name)
        family_of(outline(one.name))
        assert one.speed * num_operations(one.name) == pytest.approx(found[0].speed * num_operations(found[0].name))


def test_operations_are_two_for_each_product() -> None:
    tokens, width = 197, 192
    # Patches, then q, k, v, the projection and the MLP of every block, then attention's own, then the classifier.
    products = 196 * 768 * width + 12 * (12 * tokens * width**2 + 2 * tokens**2 * width) + width * 1000
    assert num_operations("vit_tiny_patch16_224") == 2 * products
