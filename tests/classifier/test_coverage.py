"""Sets of names with a promise: by hand, on many draws, and on drawings that the model was not shown."""

from pathlib import Path

import pytest
import torch

from clare.classifier.classifier import Classifier
from clare.classifier.coverage import empirical_coverage, least_probability, name_sets
from clare.data.sources import DataSettings, load_dataset
from clare.errors import DataError, ModelError


def test_sets_hold_the_names_from_the_least_probability_on_and_never_none() -> None:
    probabilities = torch.tensor([[0.1, 0.6, 0.31], [0.4, 0.25, 0.35], [0.34, 0.33, 0.33]])
    assert name_sets(probabilities, 0.3) == [[1, 2], [0, 2], [0, 1, 2]]
    assert name_sets(probabilities, 0.9) == [[1], [0], [0]]
    assert empirical_coverage(probabilities, torch.tensor([2, 1, 0]), 0.3) == (
        pytest.approx(2 / 3),
        pytest.approx(7 / 3),
    )


def test_the_least_probability_is_that_of_the_right_names_as_often_as_asked() -> None:
    probabilities = torch.linspace(0.01, 0.19, 19)[:, None].expand(19, 2).clone()
    labels = torch.zeros(19, dtype=torch.int64)
    assert least_probability(probabilities, labels, 0.95) == pytest.approx(0.01)
    assert least_probability(probabilities, labels, 0.5) == pytest.approx(0.1)
    with pytest.raises(ModelError, match=r"in 95 % of cases need 19 held-back pictures, and the model keeps 18; "):
        least_probability(probabilities[:18], labels[:18], 0.95)


@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_over_many_draws_sets_hold_the_right_name_as_often_as_promised(coverage: float) -> None:
    generator = torch.Generator().manual_seed(0)
    held = []
    for _ in range(200):
        # Probabilities that claim too much: the promise asks nothing of them.
        probabilities = (3 * torch.randn(80, 6, generator=generator)).softmax(1)
        labels = torch.multinomial(probabilities.sqrt(), 1, generator=generator).squeeze(1)
        least = least_probability(probabilities[:40], labels[:40], coverage)
        held.append(empirical_coverage(probabilities[40:], labels[40:], least)[0])
    assert coverage - 0.01 < sum(held) / len(held) < coverage + 0.03


def test_drawings_are_in_their_sets_as_often_as_promised(tmp_path: Path) -> None:
    data = load_dataset(DataSettings(dataset="quickdraw", channels=1))

    def images(part: str, label: int, number: int) -> list[object]:
        source = data.train if part == "train" else data.test
        canvas, _ = source.batch((source.labels == label).nonzero().squeeze(1)[:number])
        return [image[0].numpy() for image in canvas.pixels]

    model = Classifier(tmp_path / "model", device="cpu")
    labels = range(5, 105, 10)
    model.learn({data.classes[label]: images("train", label, 40) for label in labels}, mode="quick")  # type: ignore[misc]
    asked = [(data.classes[label], image) for label in labels for image in images("test", label, 20)]
    answers = model.guess([image for _, image in asked], coverage=0.9)
    held = [name in (answer.one_of or ()) for (name, _), answer in zip(asked, answers, strict=True)]
    assert sum(held) / len(held) > 0.86
    assert sum(len(answer.one_of or ()) for answer in answers) / len(answers) < 6
    assert all(answer.one_of and answer.one_of[0] == answer.guesses[0].name for answer in answers)
    assert "one_of" not in model.guess([asked[0][1]])[0].as_json()
    strict, loose = (sum(a.is_unknown for a in model.guess([i for _, i in asked], unknown_rate=r)) for r in (0.05, 0.4))
    assert strict < 0.15 * len(asked) < 0.25 * len(asked) < loose
    for wrong in ({"coverage": 1.0}, {"unknown_rate": 0.0}, {"unknown_rate": 0.1, "threshold": 0.3}):
        with pytest.raises(DataError, match="give "):
            model.guess([asked[0][1]], **wrong)  # type: ignore[arg-type]
