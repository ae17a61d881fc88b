"""A taught model: classes come, get more pictures, change their names and go, and every change can be taken back."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from head_steps import small
from own_worlds import answers, content, drawings, new_model, odds, taught_model, tiny_weights, write_pictures

from clare.classifier.classifier import Classifier, load
from clare.classifier.teaching import features_of
from clare.errors import ClareError, DataError, ModelError
from clare.methods.state import learnt_tensors
from clare.model.folder import read_manifest, state_bytes
from clare.model.records import ClassInfo, class_reports

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def state_of(model: Classifier) -> tuple[bytes, bytes]:
    """Return the bytes of a model's state and of its tensors as they are in the folder."""
    state = read_manifest(model.path).state
    return state_bytes(state), (model.path / state["tensors"]).read_bytes()


def test_a_new_model_says_what_it_is(tmp_path: Path) -> None:
    model = new_model(tmp_path)
    assert (model.version, model.classes, [change.kind for change in model.history]) == (1, [], ["create"])
    assert (model.image_size, model.channels, model.is_drawing_model) == (28, 1, True)
    assert model.backbone_name == f"quickdraw-vit ({tmp_path / 'tiny-0.safetensors'})"
    assert model.parts.backbone.fingerprint == model.parts.backbone.fingerprint
    assert model.capacity is not None
    assert model.capacity.num_free == model.capacity.num_coordinates
    assert model.tasks_left == 45
    assert model.calibration is None
    with pytest.raises(ModelError, match=r"knows no classes yet; teach it some: clare learn .*model PICTURES"):
        model.guess(np.zeros((28, 28), np.uint8))


def test_classes_are_dated_counted_and_told_apart(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    assert [(info.name, info.task, info.num_images) for info in model.classes] == [
        ("cat", 1, 8),
        ("dog", 1, 8),
        ("bus", 2, 8),
        ("van", 2, 8),
    ]
    assert all(ISO.fullmatch(info.taught_at) for info in model.classes)
    assert [(change.number, change.kind, change.classes) for change in model.history] == [
        (1, "create", ()),
        (2, "learn", ("cat", "dog")),
        (3, "learn", ("bus", "van")),
    ]
    report = model.history[-1].report
    assert (report["num_train"], report["num_held_back"]) == (16, 4)
    assert report["classes"]["bus"]["num_held_back"] == 2
    assert report["num_free"] == model.capacity.num_free  # type: ignore[union-attr]
    evaluation = model.evaluate(drawings("cat", "dog", "bus", "van", seed=9))
    assert evaluation.accuracy is not None
    assert evaluation.accuracy > 0.8
    assert evaluation.counts == (10, 10, 10, 10)
    assert [sum(row) for row in evaluation.confusion] == [10] * 4
    assert [evaluation.confusion[place][place] for place in range(4)] == list(evaluation.correct)


def test_guesses_are_sorted_probabilities(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    (guess,) = model.guess(drawings("dog", seed=3)["dog"][0], top=10)
    assert set(odds(guess)) == {"cat", "dog", "bus", "van"}
    assert list(odds(guess).values()) == sorted(odds(guess).values(), reverse=True)
    assert sum(odds(guess).values()) == pytest.approx(1)
    assert 0 <= guess.unknown <= 1
    assert model.guess([]) == []
    assert model.guess(drawings("dog")["dog"][0], top=1, threshold=0.0)[0].is_unknown
    assert not model.guess(drawings("dog")["dog"][0], top=1, threshold=1.0)[0].is_unknown
    with pytest.raises(DataError, match="number of guesses is 0"):
        model.guess(drawings("dog")["dog"][0], top=0)


def test_probabilities_are_fitted_to_pictures_held_back(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    pictures = drawings("cat", "dog", "bus", "van", seed=5)
    fitted = model.evaluate(pictures)
    assert model.scale == model.calibration["scale"]  # type: ignore[index]
    assert fitted.certainty is not None
    (guess,) = model.guess(pictures["bus"][0], top=4)
    # A folder of before has a curve without a factor, and answers as it always did.
    curve = {name: value for name, value in (model.calibration or {}).items() if name != "scale"}
    manifest = model._state.manifest
    state = {**manifest.state, "calibration": curve}
    model._held = replace(model._state, manifest=replace(manifest, state=state))
    assert model.scale == model.parts.method.head.scale
    (before,) = model.guess(pictures["bus"][0], top=4)
    pairs = [list(odds(answer).values())[:2] for answer in (guess, before)]
    ratios = [math.log(first / second) for first, second in pairs]
    assert list(odds(guess)) == list(odds(before))
    assert ratios[0] / ratios[1] == pytest.approx(fit_scale_of(model) / model.scale)


def fit_scale_of(model: Classifier) -> float:
    """Return the factor that a model's folder holds."""
    return float(read_manifest(model.path).state["calibration"]["scale"])


def test_a_folder_is_opened_as_it_was_left(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    again = load(model.path, device="cpu")
    assert (again.version, again.classes, again.history) == (model.version, model.classes, model.history)
    assert answers(again) == answers(model)
    model.learn(drawings("tram"))
    again.learn(drawings("bike"))
    assert [info.name for info in again.classes] == ["cat", "dog", "bus", "van", "tram", "bike"]
    assert again.version == 5


def test_the_same_lessons_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = taught_model(tmp_path / "a"), taught_model(tmp_path / "b")
    assert state_of(first)[1] == state_of(second)[1]


@pytest.mark.parametrize("kind", ["learn", "quick", "update", "rename", "remove"])
def test_undo_puts_back_every_byte(tmp_path: Path, kind: str) -> None:
    model = taught_model(tmp_path)
    before, said = state_of(model), answers(model)
    if kind in ("learn", "quick"):
        model.learn(drawings("tram", "bike"), mode=kind)  # type: ignore[arg-type]
    elif kind == "update":
        model.learn(drawings("cat", seed=8), mode="update")
    elif kind == "rename":
        model.rename("cat", "kitten")
    else:
        model.remove("cat")
    assert state_of(model) != before
    assert state_of(model)[1] != before[1] or kind == "rename"
    change = model.undo()
    assert (change.number, change.kind, change.report) == (5, "undo", {"undone": 4, "kind": kind})
    assert state_of(model) == before
    assert answers(model) == answers(load(model.path, device="cpu")) == said
    assert model.version == 5


def test_several_undos_go_as_far_as_states_are_kept(tmp_path: Path) -> None:
    model = new_model(tmp_path)
    states = []
    for number in range(7):
        states.append(state_of(model))
        model.learn(drawings(f"class {number}"), mode="quick")
    assert model.num_undoable == 5
    for number in reversed(range(2, 7)):
        model.undo()
        assert state_of(model) == states[number]
    with pytest.raises(ModelError, match=r"nothing to undo in .*model: .* \(the last 5 are\)"):
        model.undo()
    assert model.version == 1 + 7 + 5
    model.learn(drawings("new"), mode="quick")
    assert model.undo().report == {"undone": 14, "kind": "quick"}


def test_how_many_states_are_kept_is_a_setting(tmp_path: Path) -> None:
    model = Classifier(
        tmp_path / "model", backbone=tiny_weights(tmp_path), method="simplecil", device="cpu", num_kept=2
    )
    for number in range(4):
        model.learn(drawings(f"class {number}"))
    assert model.num_undoable == 2
    assert len(list(model.path.glob("tensors-*"))) == 3
    assert len(list(model.path.glob("state-*"))) == 2
    model.undo()
    assert len(list(model.path.glob("tensors-*"))) == 2
    with pytest.raises(ModelError, match="keep at least one"):
        Classifier(tmp_path / "other", backbone=tiny_weights(tmp_path), num_kept=0).learn(drawings("cat"))


def test_quick_lessons_claim_nothing(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    before = learnt_tensors(model.parts.method)["adapter.values"].clone()
    capacity = model.capacity
    model.learn(drawings("tram", "bike"), mode="quick")
    assert torch.equal(learnt_tensors(model.parts.method)["adapter.values"], before)
    assert model.capacity is not None
    assert capacity is not None
    assert model.capacity.num_free == capacity.num_free
    assert model.claims is not None
    assert model.claims[2] == [0, 0]
    evaluation = model.evaluate(drawings("tram", "bike", seed=3))
    assert evaluation.accuracy is not None
    assert evaluation.accuracy > 0.8
    model.learn(drawings("plane"))
    assert [sum(row) > 0 for row in model.claims] == [True, True, False, False]
    assert model.classes[-1] == ClassInfo("plane", 4, model.classes[-1].taught_at, 8)


@pytest.mark.parametrize("kind", ["trained", "prototype", "aligned", "discriminant", "quadratic", "ridge"])
def test_quick_lessons_work_with_every_kind_of_rows(tmp_path: Path, kind: str) -> None:
    model = new_model(tmp_path, head=small(kind))
    model.learn(drawings("cat", "dog"), mode="quick")
    evaluation = model.evaluate(drawings("cat", "dog", seed=4))
    assert evaluation.accuracy == 1


@pytest.mark.parametrize("kind", ["discriminant", "quadratic", "ridge"])
def test_a_class_leaves_a_head_that_is_solved(tmp_path: Path, kind: str) -> None:
    model = new_model(tmp_path, head=small(kind))
    model.learn(drawings("cat", "dog", "bus"), mode="quick")
    model.remove("dog")
    assert {name for guess in answers(model) for name in odds(guess)} == {"cat", "bus"}
    model.learn(drawings("van"), mode="quick")
    again = load(model.path, device="cpu")
    assert again.evaluate(drawings("cat", "bus", "van", seed=4)).accuracy == 1


def test_reports_follow_names_and_undo(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    assert model.reports.keys() == {"cat", "dog", "bus", "van"}
    model.rename("cat", "kitten")
    model.remove("bus")
    assert model.reports.keys() == {"kitten", "dog", "van"}
    model.undo()
    model.undo()
    assert model.reports.keys() == {"cat", "dog", "bus", "van"}
    assert class_reports(model.history)["cat"].measured_at == model.history[2].at


def test_a_removed_class_goes_and_its_coordinates_stay(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    free, rows = model.capacity, model.parts.method.head.rows.clone()
    model.remove("dog")
    assert [info.name for info in model.classes] == ["cat", "bus", "van"] == model.parts.method.classes
    assert torch.equal(model.parts.method.head.rows, rows[[0, 2, 3]])
    assert len(model.parts.method.head.means) == len(model.parts.method.head.factors) == 3
    assert model.capacity == free
    assert "dog" not in (model.path / "model.json").read_text().split('"history"')[0]
    assert {name for guess in answers(model) for name in odds(guess)} == {"cat", "bus", "van"}
    model.remove("cat")
    assert model.parts.method.tasks == [(), ("bus", "van")]
    model.learn(drawings("dog", "cat"))
    assert load(model.path, device="cpu").parts.method.classes == ["bus", "van", "dog", "cat"]
    assert model.classes[-1].task == 3


@pytest.mark.parametrize("method", ["finetune", "linear", "simplecil"])
def test_other_methods_with_one_row_per_class_do_the_same(tmp_path: Path, method: str) -> None:
    model = taught_model(tmp_path, method)
    assert (model.capacity, model.claims, model.tasks_left) == (None, None, None)
    model.learn(drawings("tram"), mode="quick")
    model.learn(drawings("tram", seed=2), mode="update")
    model.remove("cat")
    assert model.evaluate(drawings("dog", "tram", seed=7)).accuracy == 1
    for _ in range(3):
        model.undo()
    assert model.parts.method.classes == ["cat", "dog", "bus", "van"]


def test_rows_that_followed_the_features_stay_where_they_went(tmp_path: Path) -> None:
    settings = {"epochs": 4, "learning_rate": 0.5, "sparsity": 0.0, "head": {"kind": "prototype"}}
    model = Classifier(
        tmp_path / "model", backbone=tiny_weights(tmp_path), method="clare-plus", settings=settings, device="cpu"
    )
    model.learn(drawings("cat", "dog"))
    before = state_of(model)
    model.learn(drawings("bus", "van"))
    followed, number = model.parts.method.head.rows[0].clone(), model.classes[0].num_images
    picture = drawings("cat", seed=3)["cat"][0]
    model.learn({"cat": [picture]}, mode="update")
    feature = features_of(model.parts.context, model.parts.method, [picture[None]])[0]
    torch.testing.assert_close(model.parts.method.head.rows[0], (number * followed + feature) / (number + 1))
    for _ in range(2):
        model.undo()
    assert state_of(model) == before


def test_a_method_that_keeps_more_than_rows_learns_and_says_what_it_cannot(tmp_path: Path) -> None:
    model = Classifier(
        tmp_path / "model",
        backbone=tiny_weights(tmp_path),
        method="ranpac",
        settings={"head": {"num_projected": 64}, "epochs": 1},
        device="cpu",
    )
    model.learn(drawings("cat", "dog"))
    model.learn(drawings("bus", "van"))
    assert model.evaluate(drawings("cat", "bus", seed=3)).accuracy == 1
    for change in (
        lambda: model.remove("cat"),
        lambda: model.learn(drawings("tram"), mode="quick"),
        lambda: model.learn(drawings("cat"), mode="update"),
    ):
        with pytest.raises(ModelError, match=r"the method 'ranpac' keeps more of a class than a row"):
            change()
    model.rename("cat", "kitten")
    model.undo()
    model.undo()
    assert model.parts.method.classes == ["cat", "dog"]


def test_what_cannot_be_taught_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    before, said = content(model.path), answers(model)
    write_pictures(tmp_path / "bad", "fine")
    (tmp_path / "bad" / "broken").mkdir()
    (tmp_path / "bad" / "broken" / "a.png").write_bytes(b"no image")
    write_pictures(tmp_path / "empty", "full")
    (tmp_path / "empty" / "hollow").mkdir()
    (tmp_path / "none").mkdir()
    for examples, mode, message in (
        (drawings("cat"), "learn", r"'cat' is known already; give more pictures with --update .* or leave them out"),
        (drawings("cat", "new"), "quick", r"'cat' is known already; .* or teach 'new' without them"),
        (
            drawings("dog", "cat", "a", "b"),
            "learn",
            r"classes 'dog', 'cat' are known already; .* teach 'a', 'b' without",
        ),
        (
            drawings("cat", "a", "b"),
            "update",
            r"knows no class 'a', 'b'.*; teach new classes by themselves, without --up",
        ),
        (drawings("cta"), "update", r"knows no class 'cta' \(did you mean 'cat'\?\); known: cat, dog, bus, van"),
        ({}, "learn", "no classes to read"),
        ({"hollow": []}, "learn", "'hollow' has no images"),
        ({"two\nlines": drawings("x")["x"]}, "learn", "cannot be a class name"),
        ({" ": drawings("x")["x"]}, "learn", "cannot be a class name"),
        (tmp_path / "nowhere", "learn", "there is no folder .*nowhere"),
        (tmp_path / "none", "learn", "has no class folders"),
        (tmp_path / "empty", "learn", "'.*hollow' has no images"),
        (tmp_path / "bad", "learn", r"'.*broken/a\.png' cannot be read as an image"),
    ):
        with pytest.raises(ClareError, match=message):
            model.learn(examples, mode=mode)  # type: ignore[arg-type]
    for change, message in (
        (lambda: model.rename("cat", "dog"), "there is a class 'dog' already"),
        (lambda: model.rename("cow", "dog"), "knows no class 'cow'"),
        (lambda: model.rename("cat", "a\tb"), "cannot be a class name"),
        (lambda: model.remove("cow"), "knows no class 'cow'"),
        (
            lambda: load(model.path, tiny_weights(tmp_path, seed=1)),
            "was made for the backbone .* load the same weights",
        ),
        (lambda: Classifier(model.path, settings={"sparsity": 0.5}), "was made with other settings; leave out"),
    ):
        with pytest.raises(ClareError, match=message):
            change()
    assert content(model.path) == before
    assert answers(model) == said
