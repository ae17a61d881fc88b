"""Models with the same frozen features become one that knows what all pictures would have taught."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from own_worlds import FAST, content, drawings, tiny_weights

import clare
from clare.classifier import changes, classifier
from clare.classifier.classifier import Classifier
from clare.classifier.pictures import Pictures
from clare.errors import ModelError
from clare.methods.state import learnt_tensors
from clare.model.records import Change, lessons

HEADS: dict[str, dict[str, Any]] = {
    "prototype": {},
    "discriminant": {"shrinkage": "auto"},
    "ridge": {"num_projected": 64},
    "quadratic": {"num_directions": 24, "shrinkage": "auto", "own_share": "auto"},
}
"""As many directions as there are features are all of a covariance."""


def lesson(*classes: str, seed: int, number: int = 12) -> Pictures:
    """Return pictures of which none is held back but two of each class."""
    found = drawings(*classes, seed=seed, number=number)
    arrays = {name: [image[None] for image in images] for name, images in found.items()}
    return Pictures({n: images[2:] for n, images in arrays.items()}, {n: images[:2] for n, images in arrays.items()})


def both(one: Pictures, other: Pictures) -> Pictures:
    """Return the pictures of two lessons as one."""
    parts = [
        {
            name: [*first.get(name, []), *second.get(name, [])]
            for name in (*first, *(n for n in second if n not in first))
        }
        for first, second in ((one.train, other.train), (one.held_back, other.held_back))
    ]
    return Pictures(*parts)


def make(folder: Path, kind: str = "discriminant", **given: Any) -> Classifier:
    """Make a classifier of frozen features."""
    settings = {"head": {"kind": kind, "form": "cosine", **HEADS[kind]}}
    if kind == "prototype":
        settings["head"].pop("form")
    return clare.Classifier(backbone=tiny_weights(folder), method="linear", settings=settings, device="cpu", **given)


@pytest.mark.parametrize("kind", HEADS)
def test_a_merged_model_is_one_that_was_taught_with_all_pictures(tmp_path: Path, kind: str) -> None:
    january, february = lesson("cat", "dog", "bus", seed=1), lesson("dog", "van", "bus", seed=2, number=16)
    one, other, whole = (make(tmp_path, kind) for _ in range(3))
    one.learn(january)
    other.learn(february)
    whole.learn(both(january, february))
    change = one.merge(other)
    assert (change.kind, change.classes, change.report["shared"]) == ("merge", ("dog", "van", "bus"), ["dog", "bus"])
    assert one.classes_.tolist() == whole.classes_.tolist() == ["cat", "dog", "bus", "van"]
    assert [info.num_images for info in one.classes] == [info.num_images for info in whole.classes]
    images = [image for group in drawings("cat", "dog", "bus", "van", "new", seed=9).values() for image in group]
    pixels = [image[None] for image in images]
    mine, theirs = (model.parts.logits(model.parts.features(pixels)) for model in (one, whole))
    # Of equally probable classes a constant may be left out.
    apart = (mine - theirs) - (mine - theirs).mean(1, keepdim=True)
    size = (theirs - theirs.mean(1, keepdim=True)).abs().max()
    assert apart.abs().max() <= 2e-4 * size
    for name in ("means", "counts", "scatter", "gram", "sums"):
        if hasattr(one.parts.method.head, name):
            torch.testing.assert_close(
                getattr(one.parts.method.head, name), getattr(whole.parts.method.head, name), rtol=1e-4, atol=1e-4
            )
    assert one.predict(images).tolist() == whole.predict(images).tolist()
    assert {name: report.num_held_back for name, report in one.reports.items()} == {
        "cat": 2,
        "dog": 4,
        "bus": 4,
        "van": 2,
    }


def test_truncated_directions_of_shared_classes_are_near(tmp_path: Path) -> None:
    january, february = lesson("cat", "dog", seed=1), lesson("dog", "cat", seed=2)
    one, other, whole = (
        clare.Classifier(
            backbone=tiny_weights(tmp_path),
            method="linear",
            settings={"head": {"kind": "quadratic", "num_directions": 2}},
            device="cpu",
        )
        for _ in range(3)
    )
    one.learn(january)
    other.learn(february)
    whole.learn(both(january, february))
    one.merge(other)
    factors, exact = one.parts.method.head.factors.double(), whole.parts.method.head.factors.double()
    found, real = factors @ factors.mT, exact @ exact.mT
    assert not one.parts.method.head.merges_exactly
    assert 0 < (found - real).norm() < 0.5 * real.norm()
    torch.testing.assert_close(one.parts.method.head.scatter, whole.parts.method.head.scatter, rtol=1e-4, atol=1e-4)


def test_a_merge_is_undone_and_its_folder_can_be_taught_on(tmp_path: Path) -> None:
    one = make(tmp_path)
    one.learn(lesson("cat", "dog", seed=1))
    one.save(tmp_path / "one")
    one = clare.load(tmp_path / "one", device="cpu")
    before = content(tmp_path / "one")["model.json"]
    other = make(tmp_path)
    other.learn(lesson("van", seed=2))
    images = drawings("cat", "van", seed=9)["van"]
    said = one.predict_proba(images).tolist()
    one.merge(other)
    again = clare.load(tmp_path / "one", device="cpu")
    assert again.predict(images).tolist() == ["van"] * len(images)
    assert [(info.name, info.task) for info in again.classes] == [("cat", 1), ("dog", 1), ("van", 2)]
    again.learn(lesson("tram", seed=3))
    again.undo()
    again.undo()
    assert again.predict_proba(images).tolist() == said
    assert content(tmp_path / "one")["model.json"] != before


def test_models_that_do_not_add_up_are_refused_in_one_sentence(tmp_path: Path) -> None:
    one = make(tmp_path)
    one.learn(lesson("cat", "dog", seed=1))
    before = {name: tensor.clone() for name, tensor in learnt_tensors(one.parts.method).items()}
    (tmp_path / "other").mkdir()
    elsewhere = clare.Classifier(
        backbone=tiny_weights(tmp_path, seed=1),
        method="linear",
        settings={"head": {"kind": "discriminant"}},
        device="cpu",
    )
    adapted, seeded = (
        clare.Classifier(backbone=tiny_weights(tmp_path), method="clare", settings=FAST, device="cpu"),
        None,
    )
    adapted.learn(lesson("cat", "van", seed=2))
    adapted_too = clare.Classifier(backbone=tiny_weights(tmp_path), method="clare", settings=FAST, device="cpu")
    adapted_too.learn(lesson("bus", "tram", seed=2))
    elsewhere.learn(lesson("cat", seed=2))
    numbered = make(tmp_path)
    numbered.fit([image for group in drawings("a", "b").values() for image in group], [0] * 10 + [1] * 10)
    ridge, seeded = make(tmp_path, "ridge"), make(tmp_path, "ridge", seed=5)
    ridge.learn(lesson("cat", seed=2))
    seeded.learn(lesson("cat", seed=3))
    one.save(tmp_path / "copy")
    trained = [
        clare.Classifier(
            backbone=tiny_weights(tmp_path),
            method="linear",
            settings={"head": {"kind": "trained"}, "epochs": 1},
            device="cpu",
        )
        for _ in range(2)
    ]
    trained[0].learn(lesson("cat", "van", seed=2))
    trained[1].learn(lesson("bus", "tram", seed=2))
    for ours, theirs, words in (
        (one, elsewhere, "different backbones"),
        (one, make(tmp_path, "prototype"), "knows no classes yet"),
        (make(tmp_path), one, "knows no classes yet"),
        (one, ridge, "different methods or settings"),
        (ridge, seeded, "other random features; make them with the same --seed"),
        (adapted, adapted_too, "each have an adapter of their own"),
        (one, clare.load(tmp_path / "copy", device="cpu"), "learnt 'cat', 'dog' from the same pictures"),
        (*trained, "keeps no sums that add up"),
        (one, numbered, "of type text"),
    ):
        with pytest.raises((ModelError, ValueError), match=words):
            ours.merge(theirs)
    assert one.classes_.tolist() == ["cat", "dog"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in learnt_tensors(one.parts.method).items())


def test_lessons_of_the_same_moment_are_told_apart_by_their_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (changes, classifier):
        monkeypatch.setattr(module, "now", lambda: "2026-01-01T00:00:00+00:00")
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    one, other, third = (make(tmp_path) for _ in range(3))
    for model, seed in ((one, 1), (other, 2), (third, 2)):
        model.learn(lesson("cat", "dog", seed=seed))
        model.rename("dog", "hound")
    one.merge(other)
    assert one.classes[0].num_images == 20
    for again in (other, third):
        with pytest.raises(ModelError, match="learnt 'cat', 'dog' from the same pictures"):
            one.merge(again)
    one.undo()
    one.merge(third)


def test_a_lesson_is_known_by_its_pictures_in_any_order() -> None:
    first = lesson("cat", "dog", seed=1)
    turned = Pictures(
        {name: [*first.held_back[name], *first.train[name][::-1]] for name in ("dog", "cat")}, {"cat": [], "dog": []}
    )
    assert first.digest() == turned.digest()
    others = (lesson("cat", "dog", seed=2), first.of(["cat"]), Pictures({"cat": [], "dog": []}, {}))
    assert len({each.digest() for each in (first, *others)}) == 4


def test_lessons_of_folders_without_digests_are_known_by_what_was_noted() -> None:
    one, same, later = (Change(1, "learn", f"2026-01-0{day}", ("cat",), {"accuracy": 0.5}) for day in (1, 1, 2))
    undo = Change(2, "undo", "2026-01-03", ("cat",), {})
    assert lessons([one]) == lessons([same]) != lessons([later])
    assert list(lessons([one]).values()) == [("cat",)]
    assert lessons([one, undo]) == {}
    assert lessons([one, Change(2, "fit", "2026-01-03", ("bus",), {"pictures": ["f"]})]) == {"f": ("bus",)}
