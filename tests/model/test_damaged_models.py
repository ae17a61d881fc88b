"""Damage to a model folder ends in one sentence, or changes nothing; what a killed creation leaves is no model."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from damage import copy_with, files_of, flips, losses
from own_worlds import answers, taught_model

from clare.classifier.classifier import load
from clare.errors import ClareError, ModelError
from clare.model.folder import holds_leftovers_alone, read_manifest
from clare.plain import is_plain
from clare.sealed import SEAL, seal

RELEASED = Path(__file__).parents[1] / "releases" / "0.1.0" / "model"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model that was taught twice and keeps the states before."""
    folder = tmp_path_factory.mktemp("world")
    taught_model(folder)
    return folder


@pytest.fixture
def model(world: Path, tmp_path: Path) -> Path:
    """Return a copy of the model."""
    return shutil.copytree(world / "model", tmp_path / "model")


def told(folder: Path) -> tuple[Any, ...]:
    """Return all that a model says of itself and of some pictures."""
    model = load(folder, device="cpu")
    return model.version, model.classes, model.history, model.reports, model.calibration, answers(model)


def undone(folder: Path) -> tuple[Any, ...]:
    """Take back both lessons, and return what the model says after each."""
    model = load(folder, device="cpu")
    model.undo()
    once = (model.classes, answers(load(folder, device="cpu")))
    model.undo()
    return (*once, load(folder, device="cpu").classes)


def outcome(act: Any, folder: Path) -> Any:
    """Return what reading or undoing gives, or nothing where one sentence says that the folder is damaged."""
    try:
        return act(folder)
    except ClareError as error:
        said = str(error)
        assert str(folder) in said or "setting" in said, said
        assert ";" in said
        assert "\n" not in said
        return None


def check_damages(model: Path, damages: Iterable[tuple[str, str, bytes | None]]) -> tuple[int, int]:
    """Ask a model and take back its lessons after each of some damages, and return how often both went well."""
    copy = model.parent / "copy"
    before, after = told(model), undone(shutil.copytree(model, model.parent / "undone"))
    num_read = num_undone = 0
    for what, name, data in damages:
        try:
            found = outcome(told, copy_with(model, copy, name, data))
            assert found in (None, before)
            back = outcome(undone, copy)
            assert back in (None, after)
        except Exception as error:
            raise AssertionError(what) from error
        num_read, num_undone = num_read + (found is not None), num_undone + (back is not None)
    return num_read, num_undone


def test_every_loss_is_told(model: Path) -> None:
    kept = [name for name in files_of(model) if name not in ("model.json", read_manifest(model).state["tensors"])]
    assert sorted(Path(name).suffix for name in kept) == [".json", ".json", ".safetensors", ".safetensors"]
    num_read, num_undone = check_damages(model, losses(model))
    # Reading needs no kept state, and taking back all lessons needs all of them: only a last line break says nothing.
    assert num_undone == 1
    assert num_read == 1 + sum(name in kept for _, name, _ in losses(model))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_200_damaged_bytes_of_every_file(model: Path) -> None:
    num_files = len(files_of(model))
    num_read, num_undone = check_damages(model, flips(model, 200, seed=19))
    # White space in model.json says nothing, and reading needs no kept state.
    assert num_undone < 200
    assert num_read == num_undone + 200 * (num_files - 2)


@pytest.mark.parametrize("key", ["seed", "version", "classes", "history", "kept", "calibration"])
def test_a_manifest_that_says_something_else_is_noticed(model: Path, key: str) -> None:
    values = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps({**values, key: None if key != "calibration" else {}}))
    with pytest.raises(ModelError, match=r"model\.json is damaged: its content does not fit its digest; restore"):
        told(model)


def test_a_manifest_whose_digest_has_another_name_is_noticed(model: Path) -> None:
    text = (model / "model.json").read_text()
    (model / "model.json").write_text(text.replace(f'"{SEAL}"', '"dihest"'))
    with pytest.raises(ModelError, match=r"model\.json is damaged: a model names no 'dihest'; restore"):
        told(model)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("method", {"epochs": 1}),
        ("method", "clare"),
        ("seed", "1993"),
        ("seed", True),
        ("structure", {"tasks": [["cat", 7]]}),
        ("structure", []),
        ("backbone", 3),
        ("backbone_hash", None),
        ("transforms", []),
        ("tensors", "../tensors.safetensors"),
        ("classes", [{"name": "cat"}]),
        ("classes", [{"name": "cat", "task": 1, "taught_at": "", "num_images": 1, "colour": "red"}]),
        ("calibration", "none"),
        ("version", 1.5),
        ("history", [{}]),
        ("history", [{"number": 1, "kind": "learn", "at": "", "classes": [], "report": {"classes": {"cat": {}}}}]),
        ("kept", [{"state": "/etc/passwd", "tensors": "x"}]),
        ("num_kept", 0),
        ("history", [{"number": 1, "kind": "forged", "at": "", "classes": [], "report": {}}]),
        ("history", [{"number": 1, "kind": "learn", "at": "", "classes": [], "report": {"accuracy": "high"}}]),
        ("calibration", {"slope": 1.0}),
        ("calibration", {"slope": -1.0, "offset": 0.0, "threshold": 0.5, "num_pairs": 4, "by": "smell"}),
        ("calibration", {"slope": float("nan"), "offset": 0.0, "threshold": 0.5, "num_pairs": 4}),
    ],
)
def test_values_that_cannot_be_are_refused_also_without_a_digest(tmp_path: Path, key: str, value: Any) -> None:
    folder = shutil.copytree(RELEASED, tmp_path / "model")
    values = json.loads((folder / "model.json").read_text())
    assert SEAL not in values
    (folder / "model.json").write_text(json.dumps({**values, key: value}))
    with pytest.raises(ModelError, match=rf"model\.json is damaged: `{key}` cannot be .*; restore the folder"):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", [{"name": "\x1b]0;mine\x07cat", "task": 1, "taught_at": "", "num_images": 1}]),
        ("structure", {"tasks": [["cat\n# Heading"]]}),
        ("backbone", {"name": "\x9b2J"}),
        ("backbone_hash", "\u202eabc"),
        ("method", {"name": "linear", "\x1b[31m": 1}),
        ("history", [{"number": 1, "kind": "learn", "at": "\x1b[2J", "classes": [], "report": {}}]),
    ],
)
def test_texts_that_would_steer_a_terminal_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    folder = shutil.copytree(RELEASED, tmp_path / "model")
    values = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(seal({**values, key: value})))
    with pytest.raises(ModelError, match=rf"model\.json is damaged: `{key}` cannot hold '.*; restore") as caught:
        read_manifest(folder)
    assert is_plain(str(caught.value))


def test_more_kept_states_than_changes_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(RELEASED, tmp_path / "model")
    values = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**values, "history": []}))
    with pytest.raises(ModelError, match="names more states before changes than changes; restore"):
        read_manifest(folder)


def test_a_structure_of_another_method_is_refused(model: Path) -> None:
    values = json.loads((model / "model.json").read_text())
    values["structure"]["claims"] = "many"
    (model / "model.json").write_text(json.dumps(seal(values)))
    with pytest.raises(ModelError, match=r"structure that .*model names does not fit the method clare \(.*restore"):
        told(model)


def test_a_model_of_an_old_release_is_sealed_by_its_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(RELEASED.parent, tmp_path / "saved")
    monkeypatch.chdir(tmp_path / "saved")
    model = load("model", device="cpu")
    model.rename("cat", "kitten")
    assert SEAL in json.loads(Path("model/model.json").read_text())
    model.undo()
    assert model.classes[0].name == "cat"


MOMENTS = {
    "after mkdir": [],
    "while the lock is held": [".lock"],
    "within the tensors": [".lock", ".tensors-0123456789abcdef.safetensors.123.tmp"],
    "after the tensors": [".lock", "tensors-0123456789abcdef.safetensors"],
    "within model.json": ["tensors-0123456789abcdef.safetensors", ".model.json.123.tmp"],
}


@pytest.mark.parametrize("names", MOMENTS.values(), ids=MOMENTS.keys())
def test_what_a_killed_creation_leaves_counts_as_empty(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"cut o")
    assert holds_leftovers_alone(tmp_path)


@pytest.mark.parametrize("name", ["model.json", "notes.txt", "state-0123456789abcdef.json", "pictures"])
def test_other_files_are_no_leftovers(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    assert not holds_leftovers_alone(tmp_path)


def test_a_model_that_lost_its_manifest_is_not_overwritten(model: Path) -> None:
    (model / "model.json").unlink()
    assert not holds_leftovers_alone(model)
