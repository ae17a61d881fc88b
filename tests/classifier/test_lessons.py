"""After every lesson the accuracies are those of the model as it is, and what a lesson cost is said."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_worlds import drawings, new_model, odds, tiny_weights
from torch import Tensor

from clare.classifier import teaching
from clare.classifier.classifier import Classifier, load
from clare.classifier.defaults import DEFAULT_METHOD
from clare.classifier.measure import fall_in_words, fallen
from clare.classifier.memory import BYTES_IN_ALL, BYTES_PER_CLASS, MAX_HELD_BACK, MIN_HELD_BACK, Memory, num_held
from clare.data.images import Pixels
from clare.engine.context import Silence
from clare.methods.protocols import CachesFeatures


class Ear(Silence):
    """A listener that remembers notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        """Remember a notice."""
        self.notices.append(text)


def features(model: Classifier, images: list[Pixels]) -> Tensor:
    """Return the features of pictures as the model is now."""
    return teaching.features_of(model.parts.context, model.parts.method, read(model, images))


def read(model: Classifier, images: list[Pixels]) -> list[Pixels]:
    """Return pictures as the model reads them."""
    return [model.reader().image(image) for image in images]


def counts(correct: int, number: int = 10) -> dict[str, Any]:
    """Return what is counted of a class."""
    return {"num_held_back": number, "num_correct": correct, "is_estimate": False}


def test_the_default_trains_nothing(tmp_path: Path) -> None:
    model = Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu")
    assert (model.parts.method.name, isinstance(model.parts.method, CachesFeatures)) == (DEFAULT_METHOD, True)
    assert model.capacity is None
    held = drawings("cat", "dog")
    model.learn(held)
    before = features(model, held["cat"])
    model.learn(drawings("bus", "van"))
    assert torch.equal(features(model, held["cat"]), before)


@pytest.mark.parametrize("mode", ["learn", "quick"])
def test_a_lesson_takes_each_picture_through_the_backbone_once(tmp_path: Path, mode: Any) -> None:
    model = Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu")
    seen: list[int] = []
    model.parts.backbone.vit.patch_embed.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    model.learn(drawings("cat", "dog", number=100), mode=mode)
    # One picture more says how wide features are.
    assert sum(seen) == 200 + 1


@pytest.mark.parametrize("at_once", [True, False])
def test_by_default_lessons_and_all_classes_at_once_end_alike(tmp_path: Path, at_once: bool) -> None:
    pictures = drawings("cat", "dog", "bus", "van")
    model = Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu")
    names = list(pictures)
    for lesson in [names] if at_once else [names[:2], names[2:]]:
        model.learn({name: pictures[name] for name in lesson})
    asked = [image for images in drawings(*names, number=3, seed=5).values() for image in images]
    other = Classifier(tmp_path / "other", backbone=tiny_weights(tmp_path), device="cpu")
    other.learn(pictures)
    for one, two in zip(model.guess(asked, top=4), other.guess(asked, top=4), strict=True):
        assert odds(one) == pytest.approx(odds(two), abs=1e-4)


@pytest.mark.parametrize(("method", "mode"), [("linear", "learn"), ("clare", "quick")])
def test_earlier_classes_are_measured_again(tmp_path: Path, method: str, mode: Any) -> None:
    model = new_model(tmp_path, method) if method == "clare" else default_model(tmp_path)
    first = model.reader().to_teach(drawings("cat", "dog"))
    model.learn(first, mode=mode)
    model.learn(drawings("bus", "van"), mode=mode)
    flat = [image for images in first.held_back.values() for image in images]
    guesses = model.guess_pixels([""] * len(flat), flat, top=1)
    given = [name for name, images in first.held_back.items() for _ in images]
    right = [guess.guesses[0].name == name for guess, name in zip(guesses, given, strict=True)]
    for name in ("cat", "dog"):
        report = model.reports[name]
        own = [hit for hit, other in zip(right, given, strict=True) if other == name]
        assert (report.num_correct, report.num_held_back) == (sum(own), len(own))
        assert report.measured_at == model.history[-1].at
    # An adapter that may move is not known to stand still for ever, but here it did.
    assert not any(report.is_estimate for report in model.reports.values())


def default_model(folder: Path) -> Classifier:
    """Make an empty model as `clare learn` does."""
    return Classifier(folder / "model", backbone=tiny_weights(folder), device="cpu")


def test_where_an_adapter_moved_earlier_classes_are_estimated_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move(context: Any, method: Any, classes: tuple[str, ...], images: Any) -> None:
        learnt(context, method, classes, images)
        values = method.adapter.values.data
        values.add_(0.5 * torch.randn(len(values), generator=torch.Generator().manual_seed(len(method.tasks))))

    learnt = teaching.teach_task
    monkeypatch.setattr(teaching, "teach_task", move)
    model = new_model(tmp_path)
    pictures = model.reader().to_teach(drawings("cat", "dog", number=20))
    model.learn(pictures)
    before = model._state.memory.held.clone()
    assert not any(report.is_estimate for report in model.reports.values())
    model.learn(drawings("bus", "van", number=20))
    assert {name: report.is_estimate for name, report in model.reports.items()} == {
        "cat": True,
        "dog": True,
        "bus": False,
        "van": False,
    }
    flat = [image for images in pictures.held_back.values() for image in images]
    truth = teaching.features_of(model.parts.context, model.parts.method, flat)
    followed = model._state.memory.held[: len(flat)]
    assert float((before - truth).norm()) > 1e-3
    assert float((followed - truth).norm()) < 0.8 * float((before - truth).norm())
    assert load(model.path, device="cpu").reports == model.reports


def test_a_fall_of_more_than_ten_points_is_told_with_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ear = default_model(tmp_path), Ear()
    model.learn(drawings("cat", "dog", number=20), listener=ear)
    assert model.history[-1].report["fallen"] == {}

    def forget(context: Any, method: Any, classes: tuple[str, ...], images: Any) -> None:
        learnt(context, method, classes, images)
        method.head.rows.data[0] = 0
        method.head.rows.data[0, method.head.num_features] = -1e6

    learnt = teaching.teach_task
    monkeypatch.setattr(teaching, "teach_task", forget)
    change = model.learn(drawings("bus", "van", number=20), listener=ear)
    assert change.report["fallen"] == {"cat": {"before": 4, "after": 0, "num_held_back": 4}}
    (notice,) = ear.notices
    assert "'cat' 4 before and 0 now of 4" in notice
    assert f"clare undo {model.path}" in notice
    assert model.reports["cat"].num_correct == 0
    model.undo()
    assert model.reports["cat"].num_correct == 4


def test_falls_are_told_from_more_than_ten_points_on() -> None:
    before = {"a": counts(10), "b": counts(9), "c": counts(5, 20), "d": counts(4), "e": counts(3)}
    after = {"a": counts(9), "b": counts(7), "c": counts(2, 20), "d": counts(4), "e": counts(1, 5)}
    assert fallen(before, after) == {
        "b": {"before": 9, "after": 7, "num_held_back": 10},
        "c": {"before": 5, "after": 2, "num_held_back": 20},
    }
    many = {f"class {place}": {"before": 4, "after": 0, "num_held_back": 4} for place in range(10)}
    words = fall_in_words(many, "clare undo 'my model'")
    assert "and 2 more classes" in words
    assert "clare undo 'my model'" in words


def test_what_is_kept_of_a_class_is_bounded() -> None:
    assert num_held(24, 10) == MAX_HELD_BACK
    assert 2 * 4608 * num_held(4608, 10) <= BYTES_PER_CLASS
    assert 500 * 2 * 4608 * num_held(4608, 500) <= BYTES_IN_ALL
    assert num_held(10**6, 1) == num_held(4608, 10**4) == MIN_HELD_BACK
    features = torch.full((3, 4), 1e9)
    kept = Memory.empty(1, 4).holding(features, torch.zeros(3, dtype=torch.int64))
    assert bool(torch.isfinite(Memory.from_tensors(kept.tensors(), 1).held).all())


def test_a_model_answers_alike_before_and_after_it_is_saved(tmp_path: Path) -> None:
    model = default_model(tmp_path)
    model.learn(drawings("cat", "dog"))
    model.learn(drawings("bus", "van"))
    again = load(model.path, device="cpu")
    asked = drawings("cat", "bus", seed=7)["cat"]
    assert [guess.unknown for guess in again.guess(asked)] == [guess.unknown for guess in model.guess(asked)]


def negative(images: list[Pixels]) -> list[Pixels]:
    """Return drawings as dark ink on white."""
    return [np.asarray(255 - image, dtype=np.uint8) for image in images]


def framed(seed: int) -> list[Pixels]:
    """Return bright patterns on a dark ground."""
    found = []
    for image in drawings("cat", seed=seed)["cat"]:
        dark = np.zeros_like(image)
        dark[4:-4, 4:-4] = image[4:-4, 4:-4]
        found.append(dark)
    return found


def test_dark_ink_on_white_is_taught_and_named_as_its_negative(tmp_path: Path) -> None:
    model = Classifier(tmp_path / "model", device="cpu")
    assert model.parts.transforms.invert == "bright-border"
    images = framed(0)
    assert model.count_inverted(read(model, images)) == 0
    assert model.count_inverted(read(model, negative(images))) == len(images)
    one, two = (features(model, group) for group in (images, negative(images)))
    assert torch.equal(one, two)


def test_a_model_of_before_inverts_nothing(tmp_path: Path) -> None:
    model = new_model(tmp_path)
    before = {"image_size": 28, "resize": 28, "normalise": "backbone"}
    model.parts.transforms = type(model.parts.transforms).model_validate(before)
    assert model.count_inverted(read(model, negative(framed(0)))) == 0


def held_of(model: Classifier) -> Tensor:
    """Return the kept features."""
    return model._state.memory.held


def test_updates_are_measured_without_an_estimate(tmp_path: Path) -> None:
    model = default_model(tmp_path)
    model.learn(drawings("cat", "dog"))
    model.learn(drawings("cat", seed=3), mode="update")
    assert len(held_of(model)) == 6
    assert {name: report.num_held_back for name, report in model.reports.items()} == {"cat": 2, "dog": 2}
    assert all(report.measured_at == model.history[-1].at for report in model.reports.values())
