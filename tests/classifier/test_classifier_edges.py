"""Odd names, failures in the middle, old folders, and the ways in from Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from own_worlds import answers, content, drawings, new_model, odds, taught_model, tiny_weights, write_pictures

import clare
from clare.backbones.vit import BackboneSettings
from clare.classifier.classifier import Classifier, load
from clare.engine.context import Silence
from clare.errors import ClareError, ModelError, SettingsError
from clare.model.folder import save_model
from clare.model.records import ClassInfo


def test_odd_names_are_names(tmp_path: Path) -> None:
    names = ("Ärger & Söhne", "a/b", "[bold]", "$x^2$", "猫", "-rf", "'\"")
    model = new_model(tmp_path)
    model.learn(drawings(*names), mode="quick")
    assert tuple(info.name for info in load(model.path, device="cpu").classes) == names
    model.rename("猫", "cat 猫")
    assert model.evaluate(drawings(*names[:2], seed=3)).num_images == 20


def test_careless_arguments_end_in_a_sentence(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    before, given = content(model.path), {"backbone": tiny_weights(tmp_path), "device": "cpu"}
    wrong: dict[str, Callable[[], Any]] = {
        r"there is no mode 'updat' \(did you mean 'update'\?\); known: learn, quick, update": lambda: model.learn(
            drawings("tram"), mode=cast(Any, "updat")
        ),
        r"there is no file 'nofile\.png'; check its name": lambda: model.predict(["nofile.png"]),
        "a NoneType holds no pictures; give paths, images, an array or a folder": lambda: model.predict(None),
        "settings came as 'epochs=5'; give a dict": lambda: Classifier(
            settings=cast(Any, "epochs=5"), **given
        ).reader(),
        "the seed is 'x'; choose one from 0 to": lambda: Classifier(seed=cast(Any, "x"), **given).reader(),
    }
    for words, call in wrong.items():
        with pytest.raises(ClareError, match=words):
            call()
    assert content(model.path) == before


def test_a_failure_in_the_middle_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    class Breaks(Silence):
        def step(self, name: str, num_epochs: int) -> None:
            if name == "statistics":
                raise KeyboardInterrupt

    model = taught_model(tmp_path)
    before, said = content(model.path), answers(model)
    with pytest.raises(KeyboardInterrupt):
        model.learn(drawings("tram"), listener=Breaks())
    assert content(model.path) == before
    assert answers(model) == said
    assert model.parts.method.classes == ["cat", "dog", "bus", "van"]
    model.learn(drawings("tram"))


def test_an_empty_model_may_be_made_anew(tmp_path: Path) -> None:
    model = new_model(tmp_path)
    model.learn(drawings("cat", "dog"), mode="quick")
    model.undo()
    other = Classifier(model.path, backbone=tiny_weights(tmp_path, seed=1), method="simplecil", device="cpu")
    other.save(model.path)
    assert (other.version, load(model.path, device="cpu").version) == (4, 4)
    assert other.parts.backbone.fingerprint != model.parts.backbone.fingerprint
    # The object that was opened before notices that the folder holds another model now.
    model.learn(drawings("cat", "dog"))
    assert (model.parts.method.name, model.parts.backbone.fingerprint) == (
        "simplecil",
        other.parts.backbone.fingerprint,
    )


def test_a_folder_of_the_old_format_is_taught_without_dates(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    old = tmp_path / "old"
    save_model(old, model.parts.method, model.parts.backbone, model.parts.transforms)
    values = json.loads((old / "model.json").read_text())
    keys = ("method", "seed", "structure", "backbone", "backbone_hash", "transforms", "tensors")
    (old / "model.json").write_text(json.dumps({"format": 1, **{key: values[key] for key in keys}}))
    opened = load(old, device="cpu")
    assert (opened.version, opened.history) == (0, [])
    assert opened.classes[0] == ClassInfo("cat", 1, "", 0)
    assert [list(odds(guess)) for guess in answers(opened)] == [list(odds(guess)) for guess in answers(model)]
    with pytest.raises(ModelError, match="does not say from how many pictures it knows 'cat'"):
        opened.learn(drawings("cat"), mode="update")
    tensors = (old / values["tensors"]).read_bytes()
    opened.learn(drawings("tram"))
    opened.remove("dog")
    opened.undo()
    opened.undo()
    assert json.loads((old / "model.json").read_text())["format"] == 3
    assert (old / values["tensors"]).read_bytes() == tensors
    assert opened.version == 4


def test_five_lines_of_python(tmp_path: Path) -> None:
    write_pictures(tmp_path / "january", "cat", "dog")
    write_pictures(tmp_path / "february", "bus")
    model = clare.Classifier(tmp_path / "my-model", backbone=tiny_weights(tmp_path), device="cpu")
    model.learn(tmp_path / "january", mode="quick")
    model.learn(tmp_path / "february", mode="quick")
    assert model.guess(str(tmp_path / "january" / "cat" / "00.png"))[0].guesses[0].name == "cat"
    model.undo()
    assert [info.name for info in model.classes] == ["cat", "dog"]
    with pytest.raises(ModelError, match="load the same weights"):
        clare.Classifier(tmp_path / "my-model", backbone="quickdraw-vit")
    again = clare.Classifier(tmp_path / "my-model", backbone=tiny_weights(tmp_path), device="cpu")
    assert answers(again) == answers(model)


def test_a_save_replaces_no_other_model(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    other = clare.Classifier(backbone=tiny_weights(tmp_path), method="simplecil", device="cpu")
    other.learn(drawings("elk", "owl"))
    before = content(model.path)
    with pytest.raises(ModelError, match="holds another model, which would be lost"):
        other.save(model.path)
    model.save(model.path)
    assert content(model.path) == before
    other.save(tmp_path / "copy")
    other.learn(drawings("ant"))
    other.save(tmp_path / "copy")
    again = load(tmp_path / "copy", device="cpu")
    assert (answers(again), again.history) == (answers(other), other.history)
    with pytest.raises(ModelError, match="nothing to undo"):
        again.undo()


def test_a_model_that_cannot_be_made_leaves_no_folder(tmp_path: Path) -> None:
    for backbone, method, settings, kind in (
        (BackboneSettings(name="vit_nowhere"), "clare", {}, ClareError),
        (tiny_weights(tmp_path), "klare", {}, SettingsError),
        (tiny_weights(tmp_path), "clare", {"sparsity": 3}, SettingsError),
    ):
        with pytest.raises(kind):
            Classifier(tmp_path / "model", backbone=backbone, method=method, settings=settings).learn(drawings("cat"))
    assert not (tmp_path / "model").exists()


def test_the_estimate_grows_with_the_lesson(tmp_path: Path) -> None:
    model = new_model(tmp_path)
    assert 0 < model.estimate_seconds(32, 2, "quick") < model.estimate_seconds(32_000, 2, "learn")


def test_a_split_folder_is_measured_on_its_test_part(tmp_path: Path) -> None:
    write_pictures(tmp_path / "split" / "train", "cat", "dog", number=6)
    write_pictures(tmp_path / "split" / "test", "cat", number=3, seed=1)
    model = new_model(tmp_path)
    change = model.learn(tmp_path / "split", mode="quick")
    assert (change.report["num_train"], change.report["num_held_back"]) == (12, 3)
    assert model.evaluate(tmp_path / "split").counts == (3, 0)


def test_what_a_killed_first_lesson_left_is_gone_on_with(tmp_path: Path) -> None:
    given = {"backbone": tiny_weights(tmp_path), "method": "simplecil", "device": "cpu"}
    clare.Classifier(**given).save(tmp_path / "model")
    again = clare.Classifier(tmp_path / "model", **given)
    again.learn(drawings("cat", "dog"))
    assert [change.kind for change in again.history] == ["create", "learn"]
