"""Scores of strangers by hand, and the figures that they are compared by."""

import json
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

from clare.heads.precision import Strangers
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


@pytest.mark.parametrize("name", ["measure_heads", "measure_scores", "choose_unknown_score", "measure_fifty_lessons"])
def test_the_page_shows_what_was_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_named(name, monkeypatch)
    facts = json.loads(script.RESULTS.read_text())
    assert facts["commit"]
    assert script.table(facts) in (ROOT / "docs" / "own_pictures.md").read_text()


def test_by_default_strangers_are_told_better_than_before_and_far_ones_nearly_always() -> None:
    gains = []
    for pair in json.loads((ROOT / "results" / "unknown_pairs.json").read_text())["pairs"]:
        areas = {key: found["area_under_curve"] for key, found in pair["scores"].items()}
        if pair["known"].split(":")[0] == pair["strangers"].split(":")[0]:
            gains.append(areas["default"] - areas["relative Mahalanobis, 0.95 (default before)"])
        else:
            assert areas["default"] > 0.97
    assert sum(gains) / len(gains) > 0.01


def script_named(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script that imports its neighbours."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return load_file(ROOT / "scripts" / f"{name}.py", "which measures the default")


def test_the_score_that_is_tried_is_the_score_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_named("choose_unknown_score", monkeypatch)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(5)
    features = torch.randn(20, 30, generator=generator) + 2 * torch.randn(4, 30, generator=generator)[labels]
    space = script.Space(features, labels)
    means = torch.stack([features[labels == label].double().mean(0) for label in range(4)])
    strangers = Strangers(means, space.counts, space.precision)
    asked = torch.randn(6, 30, generator=generator)
    expected = -strangers.familiarity(asked)
    found = script.grid(space, asked)[script.CHOSEN]
    # The one takes squared distances, the other what is left of them without a constant that all pictures share.
    torch.testing.assert_close(found - found.mean(), expected - expected.mean())
    nearest = script.scores(space, asked)["distance to the nearest class"]
    apart = asked.double()[:, None] - means
    squares = torch.stack([space.precision.squares(each) for each in apart])
    torch.testing.assert_close(nearest, squares.amin(1))
    without = script.scores(space, asked, torch.tensor([2]))["contrast with all classes"]
    others = squares[:, [0, 1, 3]]
    torch.testing.assert_close(without, others.amin(1) - others.mean(1))


def test_a_line_tells_what_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_named("choose_unknown_score", monkeypatch)
    is_stranger = torch.tensor([False] * 30 + [True] * 10)
    values = torch.stack([is_stranger + 0.1 * torch.arange(40) / 40, torch.arange(40) % 3], 1).double()
    slopes, offset = script.fit_line(values, is_stranger, 0.01)
    assert ((values @ slopes + offset > 0) == is_stranger).all()


def test_the_chosen_weights_gain_most_among_those_that_lose_nowhere_much(monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_named("choose_unknown_score", monkeypatch)
    gains = script.gains(json.loads(script.RESULTS.read_text())["pairs"])
    careful = {name: mean for name, (mean, least, far) in gains.items() if least > -0.5 and far > 98}
    assert max(careful, key=careful.__getitem__) == script.CHOSEN


def test_a_fifth_of_a_class_is_held_back_where_there_are_five(monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_named("measure_fifty_lessons", monkeypatch)
    held = script.kept_back(torch.tensor([0] * 4 + [1] * 5 + [2] * 10))
    assert [int(part.sum()) for part in held.split([4, 5, 10])] == [0, 1, 2]


def test_by_default_a_few_numbers_are_as_good_as_many() -> None:
    lines = json.loads((ROOT / "results" / "heads.json").read_text())["lines"]
    found = {head: [line for line in lines if line["head"].startswith(head)] for head in ("gaussian (", "quadratic")}
    light, plain = (sum(line["accuracy"] for line in own) / len(own) for own in found.values())
    assert light > plain - 0.002
    assert (
        sum(line["num_kept"] for line in found["gaussian ("]) < sum(line["num_kept"] for line in found["quadratic"]) / 2
    )
