"""The score of being none of the known classes: fitted to left-out classes, and measured on classes never taught."""

import json
import math
from pathlib import Path

import pytest
import torch

from clare.classifier.classifier import Classifier
from clare.classifier.unknown import best_logits, calibrate, scores
from clare.data.sources import DataSettings, load_dataset

RESULTS = Path(__file__).parents[2] / "results" / "unknown_score.json"


def test_a_picture_is_known_with_its_class_and_unknown_without() -> None:
    logits = torch.tensor([[0.9, 0.2, 0.1], [0.3, 0.1, 0.8]])
    known, left_out = best_logits(logits, torch.tensor([0, 0]))
    assert known.tolist() == pytest.approx([0.9, 0.8])
    assert left_out.tolist() == pytest.approx([0.2, 0.8])


def test_the_curve_is_the_chance_of_being_unknown() -> None:
    # At 1 three of four are known, at 0 three of four are unknown, and the curve goes through both.
    known = torch.tensor([1.0, 1, 1, 0] * 100)
    left_out = torch.tensor([0.0, 0, 0, 1] * 100)
    curve = calibrate(known, left_out)
    assert curve is not None
    high, low = scores(curve, torch.tensor([1.0, 0.0])).tolist()
    assert (high, low) == pytest.approx((0.25, 0.75), abs=0.01)
    assert float(scores(curve, torch.tensor([0.5]))) == pytest.approx(0.5)
    assert (curve["known_below"], curve["left_out_above"]) == (0.75, 0.75)
    assert curve["num_pairs"] == 400


def test_separate_scores_and_reversed_ones_give_a_finite_curve() -> None:
    apart = calibrate(torch.full((5,), 0.9), torch.full((5,), 0.1))
    assert apart is not None
    assert math.isfinite(apart["slope"])
    assert float(scores(apart, torch.tensor([0.1]))) > 0.9
    reversed_ = calibrate(torch.full((5,), 0.1), torch.full((5,), 0.9))
    assert reversed_ is not None
    assert reversed_["slope"] == 0
    equal = calibrate(torch.full((5,), 0.5), torch.full((5,), 0.5))
    assert equal is not None
    assert scores(equal, torch.tensor([0.2, 0.7])).tolist() == pytest.approx([0.5, 0.5])


def test_without_enough_pictures_nothing_is_called_unknown() -> None:
    assert calibrate(torch.ones(3), torch.zeros(3)) is None
    assert calibrate(torch.ones(9), torch.full((9,), -torch.inf)) is None
    assert scores(None, torch.ones(2)).tolist() == [0, 0]


def test_drawings_of_classes_never_taught_are_mostly_noticed(tmp_path: Path) -> None:
    data = load_dataset(DataSettings(dataset="quickdraw", channels=1))

    def images(part: str, label: int, number: int) -> list[object]:
        source = data.train if part == "train" else data.test
        canvas, _ = source.batch((source.labels == label).nonzero().squeeze(1)[:number])
        return [image[0].numpy() for image in canvas.pixels]

    model = Classifier(tmp_path / "model", device="cpu")
    model.learn({data.classes[label]: images("train", label, 40) for label in range(0, 100, 10)}, mode="quick")  # type: ignore[misc]
    evaluation = model.evaluate({data.classes[label]: images("test", label, 20) for label in range(0, 200, 5)})  # type: ignore[misc]
    assert evaluation.num_images == 200
    noticed = sum(flagged for _, flagged in evaluation.strangers.values())
    total = sum(count for count, _ in evaluation.strangers.values())
    assert total == 600
    assert evaluation.unknown_rate is not None
    assert evaluation.unknown_rate < 0.4
    assert noticed / total > 0.55


def test_the_documented_figures_are_those_of_the_script() -> None:
    results = json.loads(RESULTS.read_text())
    text = (RESULTS.parents[1] / "docs" / "own_pictures.md").read_text()
    for line in results["models"]:
        own, fitted = line["probabilities"]["own"], line["probabilities"]["fitted"]
        case = f"| {line['num_classes']} | {line['method']} | {line['mode']} | {line['head']} |"
        sure = [
            line["accuracy"],
            *(found[key] for found in (own, fitted) for key in ("certainty", "calibration_error")),
        ]
        for values in (sure, [line["known_below"], line["unknown_above"]]):
            assert f"{case} " + " | ".join(f"{100 * value:.1f}" for value in values) + " |" in text
        assert line["known_below"] > 0.5
        assert line["unknown_above"] > 0.5
        assert fitted["calibration_error"] < own["calibration_error"] + 0.01
