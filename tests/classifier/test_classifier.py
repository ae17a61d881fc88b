"""The library's front door: one class, in memory or in a folder."""

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_worlds import FAST, answers, drawings, odds, tiny_weights

import clare
from clare.backbones.vit import BackboneSettings, build_embedded
from clare.errors import BackboneError, ClareError, DataError, ModelError, SettingsError
from clare.methods.state import learnt_tensors

TINY = BackboneSettings(weights="random", architecture={"embed_dim": 24, "depth": 2, "num_heads": 2})


def make_vit(seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_embedded(embed_dim=24, depth=2, num_heads=2)


def in_memory(folder: Path, **given: Any) -> clare.Classifier:
    """Make a classifier on the tiny backbone."""
    return clare.Classifier(backbone=tiny_weights(folder), device="cpu", **given)


def stacked(*classes: str, seed: int = 0, number: int = 10) -> tuple[Any, list[str]]:
    """Return pictures as an array, and their classes."""
    pictures = drawings(*classes, seed=seed, number=number)
    return np.stack([image for images in pictures.values() for image in images]), [
        n for n in pictures for _ in pictures[n]
    ]


def test_a_timm_model_learns_task_by_task_and_stays_as_it_is() -> None:
    vit = make_vit()
    before = {name: tensor.clone() for name, tensor in vit.state_dict().items()}
    model = clare.Classifier(backbone=vit, method="clare", settings=FAST, device="cpu")
    model.learn(drawings("cat", "dog"))
    model.learn(drawings("bus", "car", "van"))
    assert model.classes_.tolist() == ["cat", "dog", "bus", "car", "van"]
    X, y = stacked("cat", "dog", "bus", "car", "van", seed=3)
    assert model.score(X, y) > 0.5
    assert all(torch.equal(tensor, before[name]) for name, tensor in vit.state_dict().items())
    assert type(vit.blocks[0]).__name__ == "Block"
    assert vit.patch_embed.proj.weight.requires_grad


def test_a_backbone_built_by_hand_must_be_given_again(tmp_path: Path) -> None:
    model = clare.Classifier(backbone=make_vit(), device="cpu")
    model.learn(drawings("cat", "dog"))
    model.save(tmp_path / "model")
    again = clare.load(tmp_path / "model", make_vit(), device="cpu")
    assert answers(again) == answers(model)
    for each in (model, again):
        each.learn(drawings("tram"))
    assert answers(again) == answers(model)
    with pytest.raises(ModelError, match="give it again"):
        clare.load(tmp_path / "model")
    with pytest.raises(ModelError, match="load the same weights"):
        clare.load(tmp_path / "model", make_vit(seed=1))


def test_memory_and_folder_do_the_same(tmp_path: Path) -> None:
    settings = {"method": "clare", "settings": FAST}
    both = [
        in_memory(tmp_path, **settings),
        clare.Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu", **settings),
    ]
    said: list[list[Any]] = [[], []]
    for place, model in enumerate(both):
        for change in (
            lambda model: model.learn(drawings("cat", "dog")),
            lambda model: model.learn(drawings("bus", "van"), mode="quick"),
            lambda model: model.update(drawings("cat", seed=3)),
            lambda model: model.rename("dog", "hound"),
            lambda model: model.remove("bus"),
            lambda model: model.undo(),
            lambda model: model.undo(),
            lambda model: model.undo(),
        ):
            made = change(model)
            reports = {name: report.num_correct for name, report in model.reports.items()}
            facts = (made.number, made.kind, made.classes, model.version, model.num_undoable, reports)
            said[place].append((facts, model.calibration, [odds(answer) for answer in answers(model)]))
    assert said[0] == said[1]
    assert (
        list(tmp_path.glob("*")) == [tmp_path / "tiny-0.safetensors", tmp_path / "model"]
        or (tmp_path / "model").is_dir()
    )


def test_in_memory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_memory(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    model.fit(*stacked("cat", "dog"))
    model.undo()
    assert (model.path, list(Path().iterdir())) == (None, [])


def test_undo_in_memory_goes_as_far_as_states_are_kept(tmp_path: Path) -> None:
    model = in_memory(tmp_path, num_kept=2)
    said = []
    for name in ("cat", "dog", "bus"):
        model.learn(drawings(name))
        said.append([odds(answer) for answer in answers(model)])
    for place in (1, 0):
        model.undo()
        assert [odds(answer) for answer in answers(model)] == said[place]
    with pytest.raises(ModelError, match=r"nothing to undo in the classifier: .* \(the last 2 are\)"):
        model.undo()
    with pytest.raises(ModelError, match="keep at least one"):
        in_memory(tmp_path, num_kept=0).learn(drawings("cat"))


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_fit_starts_anew_and_can_be_taken_back(tmp_path: Path, where: str) -> None:
    model = (
        in_memory(tmp_path)
        if where == "memory"
        else clare.Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu")
    )
    model.learn(drawings("cat", "dog"))
    before = answers(model)
    assert model.fit(*stacked("bus", "van")) is model
    fresh = in_memory(tmp_path).fit(*stacked("bus", "van"))
    assert answers(model) == answers(fresh)
    assert (model.classes_.tolist(), list(model.reports)) == (["bus", "van"], ["bus", "van"])
    assert [(info.name, info.task) for info in model.classes] == [("bus", 1), ("van", 1)]
    assert (model.history[-1].kind, model.undo().report["kind"]) == ("fit", "fit")
    assert answers(model) == before
    assert list(model.reports) == ["cat", "dog"]


def test_fit_in_a_folder_keeps_what_the_folder_was_made_with(tmp_path: Path) -> None:
    settings = {"learning_rate": 0.1, "epochs": 1}
    clare.Classifier(backbone=tiny_weights(tmp_path), method="finetune", settings=settings, seed=5, device="cpu").save(
        tmp_path / "model"
    )
    model = clare.load(tmp_path / "model", device="cpu")
    made = model.parts.method.settings
    model.fit(*stacked("cat", "dog"))
    method = clare.load(tmp_path / "model", device="cpu").parts.method
    assert (method.name, method.settings, method.seed) == ("finetune", made, 5)


def test_a_failed_fit_changes_nothing(tmp_path: Path) -> None:
    model = in_memory(tmp_path).fit(*stacked("cat", "dog"))
    before = answers(model)
    with pytest.raises(DataError, match="cannot be a class name"):
        model.fit(*stacked("cat", "a\nb"))
    model.set_params(method="inflora")
    with pytest.raises(SettingsError, match="num_tasks"):
        model.fit(*stacked("cat", "dog"))
    assert answers(model) == before
    assert model.version == 2


def test_partial_fit_learns_updates_or_does_both(tmp_path: Path) -> None:
    model = in_memory(tmp_path)
    model.partial_fit(*stacked("cat", "dog"))
    model.partial_fit(*stacked("cat", "bus", seed=4))
    assert [(change.kind, change.classes) for change in model.history[1:]] == [
        ("learn", ("cat", "dog")),
        ("update", ("cat",)),
        ("learn", ("bus",)),
    ]
    assert [(info.name, info.task, info.num_images) for info in model.classes] == [
        ("cat", 1, 16),
        ("dog", 1, 8),
        ("bus", 2, 8),
    ]
    assert model.predict_proba(stacked("cat")[0]).shape == (10, 3)
    other = in_memory(tmp_path)
    other.learn(drawings("cat", "dog"))
    other.update(drawings("cat", seed=4))
    other.learn(drawings("bus", seed=4))
    assert answers(other) == answers(model)


def test_a_partial_fit_that_fails_half_way_takes_the_other_half_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = in_memory(tmp_path).partial_fit(*stacked("cat", "dog"))
    before = answers(model)

    def fail(*given: object) -> None:
        raise ModelError("the lesson failed")

    monkeypatch.setattr("clare.classifier.teaching.teach_task", fail)
    with pytest.raises(ModelError, match="the lesson failed"):
        model.partial_fit(*stacked("cat", "bus", seed=4))
    assert [change.kind for change in model.history[-2:]] == ["update", "undo"]
    assert answers(model) == before


@pytest.mark.parametrize(
    "labels", [np.array([7, 3], np.int32), np.array([True, False]), np.array(["b", "a"]), np.array([2.0, 1.0])]
)
def test_labels_come_back_as_they_were_given_also_from_a_folder(tmp_path: Path, labels: Any) -> None:
    X, _ = stacked("cat", "dog")
    model = in_memory(tmp_path).fit(X, labels.repeat(10))
    model.save(tmp_path / "model")
    for each in (model, clare.load(tmp_path / "model", device="cpu")):
        assert each.classes_.dtype == labels.dtype
        assert each.classes_.tolist() == sorted(labels.tolist())
        assert each.predict(X).dtype == labels.dtype
        np.testing.assert_array_equal(each.predict(X[[0, 10]]), labels)


def test_labels_of_one_model_are_of_one_kind(tmp_path: Path) -> None:
    X, y = stacked("cat", "dog")
    model = in_memory(tmp_path).fit(X, [3] * 10 + [5] * 10)
    with pytest.raises(
        DataError, match="the classes of the classifier are of type int64, and 'cat', 'dog' of type text"
    ):
        model.partial_fit(X, y)
    model.learn({"7": drawings("bus")["bus"]})
    assert model.classes_.tolist() == [3, 5, 7]
    with pytest.raises(DataError, match="of type text, and '3' of type int64"):
        in_memory(tmp_path).fit(X, y).partial_fit(X[:10], [3] * 10)


def test_score_counts_unknown_classes_as_wrong(tmp_path: Path) -> None:
    model = in_memory(tmp_path).fit(*stacked("cat", "dog"))
    X, y = stacked("cat", "dog", "bus", seed=5)
    assert model.score(X, y) == np.mean(model.predict(X) == np.array(y)) <= 2 / 3
    assert model.score(drawings("cat", seed=5)) == 1


def test_many_pictures_are_answered_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_memory(tmp_path).fit(*stacked("cat", "dog"))
    X, _ = stacked("cat", "dog", seed=6)
    expected = model.predict_proba(X)
    monkeypatch.setattr("clare.classifier.answers.BATCH", 3)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-6)
    assert model.predict_proba([]).shape == (0, 2)
    assert model.predict([]).shape == (0,)
    assert model.guess([]) == []


def test_answers_name_what_they_are_about(tmp_path: Path) -> None:
    model = in_memory(tmp_path).fit(*stacked("cat", "dog"))
    picture = drawings("cat", seed=2)["cat"][0]
    assert [answer.image for answer in model.guess([picture, picture])] == ["image 1", "image 2"]
    (answer,) = model.guess(picture, top=1)
    assert (len(answer.guesses), answer.guesses[0].name) == (1, "cat")
    assert answer.guesses[0].probability == model.predict_proba(picture).max()


def test_a_classifier_that_knows_nothing_says_so(tmp_path: Path) -> None:
    picture = np.zeros((28, 28), np.uint8)
    for model, message in (
        (in_memory(tmp_path), "the classifier knows no classes yet; teach it some: fit, learn or partial_fit"),
        (
            clare.Classifier(tmp_path / "new", backbone=tiny_weights(tmp_path)),
            r"new knows no classes yet; .* clare learn",
        ),
    ):
        for ask in (model.predict, model.predict_proba, model.guess):
            with pytest.raises(ModelError, match=message):
                ask(picture)
        with pytest.raises(AttributeError, match="no `classes_` before the first lesson"):
            _ = model.classes_
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean 'clare'"):
        clare.Classifier(backbone=TINY, method="klare").reader()
    with pytest.raises(SettingsError, match=r"sparsity"):
        clare.Classifier(backbone=TINY, method="clare", settings={"sparsity": 2}).reader()
    with pytest.raises(SettingsError, match="there is no backbone 'vits14'"):
        clare.Classifier(backbone="vits14").reader()
    with pytest.raises(BackboneError, match="is a Linear, not a model that adapters can join"):
        clare.Classifier(backbone=torch.nn.Linear(2, 2)).reader()  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"model\.json is missing"):
        clare.load(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match="is there and is no model folder; choose another name"):
        clare.Classifier(tmp_path)
    with pytest.raises(DataError, match="no folder"):
        clare.Classifier(backbone=TINY, device="cpu").learn(tmp_path / "nowhere")


def test_a_folder_that_went_away_is_told(tmp_path: Path) -> None:
    model = clare.Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu")
    model.learn(drawings("cat", "dog"))
    (tmp_path / "model" / "model.json").unlink()
    with pytest.raises(ModelError, match=r"holds no model any more"):
        model.learn(drawings("bus"))


def test_weights_that_moved_can_be_named_again(tmp_path: Path) -> None:
    clare.Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu").learn(drawings("cat", "dog"))
    (tmp_path / "elsewhere").mkdir()
    moved = tiny_weights(tmp_path / "elsewhere")
    (tmp_path / "tiny-0.safetensors").unlink()
    with pytest.raises(BackboneError, match="no weights file"):
        clare.load(tmp_path / "model", device="cpu")
    model = clare.load(tmp_path / "model", moved, device="cpu")
    model.learn(drawings("bus"))
    assert len(clare.load(tmp_path / "model", device="cpu").classes) == 3


def test_pickling_is_refused_with_the_way_to_save(tmp_path: Path) -> None:
    model = in_memory(tmp_path)
    for copied in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(ModelError, match=r"save\(folder\) writes what it knows"):
            copied(model)


@pytest.mark.parametrize("name", ["Learner", "TaughtModel", "create", "teach"])
def test_old_names_say_what_became_of_them(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"clare\.{name} has become clare\.Classifier\("):
        getattr(clare, name)
    with pytest.raises(AttributeError, match="has no attribute 'teech'"):
        _ = clare.teech  # type: ignore[attr-defined]


def test_every_error_is_a_sentence_of_ours(tmp_path: Path) -> None:
    model = in_memory(tmp_path).fit(*stacked("cat", "dog"))
    before = {name: tensor.clone() for name, tensor in learnt_tensors(model.parts.method).items()}
    for pictures, message in (
        (drawings("cat"), "known already"),
        ({}, "no classes"),
        ({"empty": []}, "no images"),
        ([1, 2], "does not say what its pictures show"),
    ):
        with pytest.raises(ClareError, match=message):
            model.learn(pictures)
    assert all(torch.equal(tensor, before[name]) for name, tensor in learnt_tensors(model.parts.method).items())


def test_facts_are_told_while_another_thread_is_at_work(tmp_path: Path) -> None:
    model = in_memory(tmp_path).fit(*stacked("cat", "dog"))
    told: list[Any] = []
    with model._threads:
        asking = threading.Thread(target=lambda: told.append((model.version, model.classes_.tolist())), daemon=True)
        asking.start()
        asking.join(60)
    assert told == [(2, ["cat", "dog"])]
