"""The score of being none of the known classes: fitted to left-out classes, and measured on classes never taught."""

import json
import math
from pathlib import Path

import pytest
import torch

from clare.classifier.classifier import Classifier
from clare.classifier.unknown import calibrate, limit_at, scores, threshold_at
from clare.data.sources import DataSettings, load_dataset
from clare.errors import ModelError

RESULTS = Path(__file__).parents[2] / "results" / "unknown_score.json"


@pytest.mark.parametrize(("number", "rate", "place"), [(99, 0.05, 5), (99, 0.1, 10), (19, 0.05, 1), (18, 0.05, None)])
def test_the_limit_keeps_its_promise_on_any_number_of_pictures(number: int, rate: float, place: int | None) -> None:
    known = torch.arange(1.0, number + 1)[torch.randperm(number, generator=torch.Generator().manual_seed(0))]
    assert limit_at(known, rate) == place


def test_the_share_of_known_pictures_that_is_lost_is_what_was_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    lost = {0.05: 0.0, 0.2: 0.0}
    for _ in range(200):
        held, asked = torch.randn(2, 60, generator=generator, dtype=torch.float64)
        curve = calibrate(held, held - 1)
        for rate in lost:
            limit = threshold_at(curve, held, rate)
            lost[rate] += float((scores(curve, asked) >= limit).double().mean()) / 200
    assert lost == {rate: pytest.approx(rate, abs=0.012) for rate in lost}


def test_the_curve_rises_as_familiarity_falls_and_is_one_half_at_the_usual_limit() -> None:
    known = torch.arange(1.0, 100.0)
    curve = calibrate(known, known - 50)
    assert curve is not None
    found = scores(curve, torch.tensor([1.0, 10.0, 11.0, 99.0]))
    assert found[1].item() == pytest.approx(0.5)
    assert (found.diff() < 0).all()
    assert curve["known_below"] == pytest.approx(89 / 99)
    assert threshold_at(curve, known, 0.1) == pytest.approx(0.5)


def test_separate_scores_and_reversed_ones_give_a_finite_curve() -> None:
    apart = calibrate(torch.full((5,), 0.9), torch.full((5,), 0.1))
    assert apart is not None
    assert math.isfinite(apart["slope"])
    assert float(scores(apart, torch.tensor([0.1]))) > 0.9
    for pair in ((0.1, 0.9), (0.5, 0.5)):
        odd = calibrate(*(torch.full((5,), value) for value in pair))
        assert odd is not None
        assert -math.inf < odd["slope"] < 0


def test_too_few_pictures_for_a_share_are_said_in_one_sentence() -> None:
    known = torch.arange(18.0)
    with pytest.raises(ModelError, match=r"to lose 5 % of known pictures takes 19 held-back .* the model keeps 18; "):
        threshold_at(calibrate(known, known - 9), known, 0.05)


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
    # One in ten is the share aimed at, with a threshold set by 80 held-back drawings.
    assert evaluation.unknown_rate < 0.2
    assert noticed / total > 0.4


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
        assert f"{case} " + " | ".join(f"{100 * value:.1f}" for value in sure) + " |" in text
        assert fitted["calibration_error"] < own["calibration_error"] + 0.01
