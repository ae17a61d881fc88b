"""Backbones that suit a machine."""

import pytest
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from clare.backbones import suggest
from clare.backbones.families import check_model
from clare.backbones.hub import outline
from clare.backbones.suggest import SUGGESTED, Suggestion, best, suggestions

SMALL, MIDDLE, LARGE = (Suggestion(name, size, 1000 / size, False) for name, size in (("a", 10), ("b", 40), ("c", 100)))


def test_the_largest_that_is_fast_enough_and_fits_is_best() -> None:
    assert best([SMALL, MIDDLE, LARGE], 10**9) == MIDDLE
    assert best([SMALL, MIDDLE._replace(speed=1.0), LARGE], 10**9) == SMALL
    assert best([SMALL, MIDDLE, LARGE._replace(speed=20.0)], 400) == LARGE._replace(speed=20.0)
    assert best([SMALL, MIDDLE, LARGE._replace(speed=20.0)], 399) == MIDDLE
    assert best([SMALL, MIDDLE, LARGE], 0) == SMALL


@torch.no_grad()
@pytest.mark.parametrize("name", SUGGESTED)
def test_what_is_suggested_works_and_takes_as_many_operations_as_are_noted(name: str) -> None:
    assert timm.is_model_pretrained(name)
    model = outline(name).eval()
    check_model(model)
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(1, *model.pretrained_cfg["input_size"], device="meta"))
    assert SUGGESTED[name] == round(counter.get_total_flops() / 1e9, 1)


def test_speeds_fall_with_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "SECONDS", 0.0)
    found = suggestions(torch.device("cpu"))
    assert [one.name for one in found] == list(SUGGESTED)
    assert all(one.speed > 0 for one in found)
    rates = [one.speed * SUGGESTED[one.name] for one in found]
    assert rates == pytest.approx([rates[0]] * len(rates))
