"""Odd names, failures in the middle, old folders, and the ways in from Python."""

import json
from pathlib import Path

import pytest
from own_worlds import answers, content, drawings, new_model, taught_model, tiny_weights, write_pictures

import clare
from clare.backbones.vit import BackboneSettings
from clare.classifier.taught import TaughtModel
from clare.engine.context import Silence
from clare.errors import ClareError, ModelError, SettingsError
from clare.model.folder import save_model
from clare.model.records import ClassInfo


def test_odd_names_are_names(tmp_path: Path) -> None:
    names = ("Ärger & Söhne", "a/b", "[bold]", "$x^2$", "猫", "-rf", "'\"")
    model = new_model(tmp_path)
    model.teach(drawings(*names), mode="quick")
    assert tuple(info.name for info in TaughtModel.open(model.path, device="cpu").classes) == names
    model.rename("猫", "cat 猫")
    assert model.evaluate(drawings(*names[:2], seed=3)).num_images == 20


def test_a_failure_in_the_middle_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    class Breaks(Silence):
        def step(self, name: str, num_epochs: int) -> None:
            if name == "statistics":
                raise KeyboardInterrupt

    model = taught_model(tmp_path)
    before, said = content(model.path), answers(model)
    with pytest.raises(KeyboardInterrupt):
        model.teach(drawings("tram"), listener=Breaks())
    assert content(model.path) == before
    assert answers(model) == said
    assert model.method.classes == ["cat", "dog", "bus", "van"]
    model.teach(drawings("tram"))


def test_an_empty_model_may_be_made_anew(tmp_path: Path) -> None:
    model = new_model(tmp_path)
    model.teach(drawings("cat", "dog"), mode="quick")
    model.undo()
    other = TaughtModel.create(model.path, tiny_weights(tmp_path, seed=1), "simplecil", device="cpu")
    assert other.version == 4
    assert other.backbone_hash != model.backbone_hash
    # The object that was opened before notices that the folder holds another model now.
    model.teach(drawings("cat", "dog"))
    assert (model.method.name, model.backbone_hash) == ("simplecil", other.backbone_hash)


def test_a_folder_of_the_old_format_is_taught_without_dates(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    old = tmp_path / "old"
    save_model(old, model.method, model.backbone, model.transforms)
    values = json.loads((old / "model.json").read_text())
    keys = ("method", "seed", "structure", "backbone", "backbone_hash", "transforms", "tensors")
    (old / "model.json").write_text(json.dumps({"format": 1, **{key: values[key] for key in keys}}))
    opened = TaughtModel.open(old, device="cpu")
    assert (opened.version, opened.history) == (0, [])
    assert opened.classes[0] == ClassInfo("cat", 1, "", 0)
    assert [guess.names for guess in answers(opened)] == [guess.names for guess in answers(model)]
    with pytest.raises(ModelError, match="does not say from how many pictures it knows 'cat'"):
        opened.teach(drawings("cat"), mode="update")
    tensors = (old / values["tensors"]).read_bytes()
    opened.teach(drawings("tram"))
    opened.remove("dog")
    opened.undo()
    opened.undo()
    assert json.loads((old / "model.json").read_text())["format"] == 2
    assert (old / values["tensors"]).read_bytes() == tensors
    assert opened.version == 4


def test_five_lines_of_python(tmp_path: Path) -> None:
    write_pictures(tmp_path / "january", "cat", "dog")
    write_pictures(tmp_path / "february", "bus")
    clare.teach(tmp_path / "my-model", tmp_path / "january", tiny_weights(tmp_path), mode="quick", device="cpu")
    model = clare.teach(tmp_path / "my-model", tmp_path / "february", mode="quick", device="cpu")
    assert model.predict(str(tmp_path / "january" / "cat" / "00.png"))[0].names[0] == "cat"
    model.undo()
    assert isinstance(model, clare.TaughtModel)
    assert [info.name for info in model.classes] == ["cat", "dog"]
    with pytest.raises(ModelError, match="has its backbone already"):
        clare.teach(tmp_path / "my-model", tmp_path / "february", "quickdraw-vit")


def test_a_learner_does_not_overwrite_a_history(tmp_path: Path) -> None:
    model = taught_model(tmp_path)
    learner = clare.load(model.path, device="cpu")
    assert learner.classes == ["cat", "dog", "bus", "van"]
    with pytest.raises(ModelError, match="with a history, which would be lost"):
        learner.save(model.path)
    learner.save(tmp_path / "copy")
    assert TaughtModel.open(tmp_path / "copy", device="cpu").method.classes == learner.classes


def test_a_model_that_cannot_be_made_leaves_no_folder(tmp_path: Path) -> None:
    for backbone, method, settings, kind in (
        (BackboneSettings(name="vit_nowhere"), "clare", {}, ClareError),
        (tiny_weights(tmp_path), "klare", {}, SettingsError),
        (tiny_weights(tmp_path), "clare", {"sparsity": 3}, SettingsError),
    ):
        with pytest.raises(kind):
            TaughtModel.create(tmp_path / "model", backbone, method, settings)
    assert not (tmp_path / "model").exists()


def test_the_estimate_grows_with_the_lesson(tmp_path: Path) -> None:
    model = new_model(tmp_path)
    assert 0 < model.estimate_seconds(32, 2, "quick") < model.estimate_seconds(32_000, 2, "learn")


def test_a_split_folder_is_measured_on_its_test_part(tmp_path: Path) -> None:
    write_pictures(tmp_path / "split" / "train", "cat", "dog", number=6)
    write_pictures(tmp_path / "split" / "test", "cat", number=3, seed=1)
    model = new_model(tmp_path)
    change = model.teach(tmp_path / "split", mode="quick")
    assert (change.report["num_train"], change.report["num_held_back"]) == (12, 3)
    assert model.evaluate(tmp_path / "split").counts == (3, 0)
