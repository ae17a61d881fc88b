"""Scores of strangers by hand, and the figures that they are compared by."""

import json
import math
from pathlib import Path

import pytest
import torch

from clare.registry import load_file

ROOT = Path(__file__).parents[2]
scores = load_file(ROOT / "scripts" / "unknown_scores.py", "which has scores of strangers")
LOGITS = torch.tensor([[2.0, 0.0], [-1.0, 1.0]])


def test_scores_of_logits_are_those_of_their_papers() -> None:
    assert scores.max_logit(LOGITS).tolist() == [-2, -1]
    assert scores.max_softmax(LOGITS, 1.0).tolist() == pytest.approx([-1 / (1 + math.exp(-2))] * 2)
    expected = [-0.5 * math.log(math.exp(4) + 1), -0.5 * math.log(math.exp(-2) + math.exp(2))]
    assert scores.energy(LOGITS, 2.0).tolist() == pytest.approx(expected)


def test_scores_of_distances_and_features_are_those_of_their_papers() -> None:
    squares = torch.tensor([[4.0, 1.0], [9.0, 16.0]])
    assert scores.mahalanobis(squares).tolist() == [1, 9]
    assert scores.relative_mahalanobis(squares, torch.tensor([2.0, 4.0])).tolist() == [-1, 5]
    assert scores.relative_mahalanobis(squares, torch.tensor([2.0, 4.0]), 0.5).tolist() == [0, 7]
    features, kept = torch.tensor([[3.0, 0, 4.0]]), torch.tensor([[2.0, 0, 0], [0, 0, 7.0], [0, 1.0, 0]])
    assert [float(scores.nearest_kept(features, kept, number)) for number in (1, 2, 3)] == pytest.approx(
        [-0.8, -0.6, 0]
    )
    directions = torch.eye(3)[:, :1]
    assert float(scores.residual(features, directions)) == 16
    vim = scores.vim(features, LOGITS[:1], directions, 0.5)
    assert float(vim) == pytest.approx(2 - math.log(math.exp(2) + 1))


def test_the_area_and_the_false_alarms_count_pairs() -> None:
    known, unknown = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0])
    assert scores.area_under_curve(known, unknown) == pytest.approx((2.5 + 4) / 8)
    assert scores.false_alarms(known, unknown) == 0.5
    many = torch.arange(100.0)
    assert scores.false_alarms(many, many) == 0.95


@pytest.mark.parametrize("name", ["measure_heads", "measure_scores"])
def test_the_page_shows_what_was_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = load_file(ROOT / "scripts" / f"{name}.py", "which measures the default")
    facts = json.loads(script.RESULTS.read_text())
    assert facts["commit"]
    assert script.table(facts) in (ROOT / "docs" / "own_pictures.md").read_text()


def test_by_default_strangers_are_told_at_least_as_well_as_by_the_largest_logit() -> None:
    for pair in json.loads((ROOT / "results" / "unknown_pairs.json").read_text())["pairs"]:
        areas = {key: found["area_under_curve"] for key, found in pair["scores"].items()}
        assert areas["default"] > areas["largest logit (before)"]


def test_by_default_a_few_numbers_are_as_good_as_many() -> None:
    lines = json.loads((ROOT / "results" / "heads.json").read_text())["lines"]
    found = {head: [line for line in lines if line["head"].startswith(head)] for head in ("gaussian (", "quadratic")}
    light, plain = (sum(line["accuracy"] for line in own) / len(own) for own in found.values())
    assert light > plain - 0.002
    assert (
        sum(line["num_kept"] for line in found["gaussian ("]) < sum(line["num_kept"] for line in found["quadratic"]) / 2
    )
