"""The model folder: the old model or the new one after a crash, and a sentence for everything that does not fit."""

import contextlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_outcome import Stop

from clare.backbones.vit import Backbone, BackboneSettings, load_backbone
from clare.data.transforms import TransformSettings
from clare.errors import ModelError, SettingsError
from clare.files import write_tensors
from clare.methods.base import Method
from clare.methods.finetune import FineTune
from clare.methods.state import learnt_tensors
from clare.model.folder import load_model, save_model
from clare.sealed import seal

TRANSFORMS = TransformSettings(image_size=28, resize=30, train="none", normalise="backbone")
MakeBackbone = Callable[..., Backbone]


def make_method(backbone: Backbone, num_classes: int) -> Method:
    """Return a method with some rows that stand for what it has learnt."""
    method = FineTune(backbone, FineTune.settings_type.model_validate({"adapter": {"bottleneck": 2}}), seed=7)
    method.tasks = [tuple(f"class {index}" for index in range(num_classes))]
    method.head.append(torch.arange(num_classes * 24.0).view(num_classes, 24))
    return method


@pytest.fixture
def saved(tiny_backbone: MakeBackbone, tmp_path: Path) -> Path:
    """Return the folder of a model of two classes."""
    save_model(tmp_path / "model", make_method(tiny_backbone(), 2), tiny_backbone(), TRANSFORMS)
    return tmp_path / "model"


def edit(folder: Path, **values: Any) -> None:
    """Change some values of the manifest, and seal it again."""
    path = folder / "model.json"
    path.write_text(json.dumps(seal({**json.loads(path.read_text()), **values})))


def test_a_model_comes_back_with_all_that_it_is(saved: Path, tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone()
    method, returned, transforms = load_model(saved, backbone)
    expected = make_method(tiny_backbone(), 2)
    assert returned is backbone
    assert (method.name, method.seed, method.settings, method.classes) == (
        "finetune",
        7,
        expected.settings,
        ["class 0", "class 1"],
    )
    assert transforms == TRANSFORMS
    assert not method.training
    assert learnt_tensors(method).keys() == learnt_tensors(expected).keys()
    assert all(torch.equal(tensor, learnt_tensors(expected)[name]) for name, tensor in learnt_tensors(method).items())


def test_a_folder_holds_one_model_and_no_backbone(saved: Path, tiny_backbone: MakeBackbone) -> None:
    before = {path.name for path in saved.iterdir()}
    save_model(saved, make_method(tiny_backbone(), 3), tiny_backbone(), TRANSFORMS)
    after = {path.name for path in saved.iterdir()}
    assert len(before) == len(after) == 2
    assert before & after == {"model.json"}
    num_bytes = sum(path.stat().st_size for path in saved.glob("*.safetensors"))
    assert num_bytes < sum(tensor.nbytes for tensor in tiny_backbone().vit.state_dict().values())


def test_an_interruption_leaves_the_old_model_or_the_new(
    saved: Path, tiny_backbone: MakeBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number in range(1, 6):
        save_model(saved, make_method(tiny_backbone(), 2), tiny_backbone(), TRANSFORMS)
        syncs = itertools.count(1)

        def sync(descriptor: int, number: int = number, syncs: Any = syncs) -> None:
            if next(syncs) == number:
                raise Stop

        with monkeypatch.context() as patch, contextlib.suppress(Stop):
            patch.setattr("os.fsync", sync)
            save_model(saved, make_method(tiny_backbone(), 3), tiny_backbone(), TRANSFORMS)
        found.append(len(load_model(saved, tiny_backbone())[0].classes))
    # Tensors, their folder, the manifest; its rename is done when its folder is synced.
    assert found == [2, 2, 2, 3, 3]


def test_a_backbone_is_loaded_again_by_its_settings(tmp_path: Path, tiny_backbone: MakeBackbone) -> None:
    weights = tmp_path / "weights.safetensors"
    write_tensors(weights, tiny_backbone().vit.state_dict())
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    backbone = load_backbone(BackboneSettings(weights=str(weights), architecture=sizes))
    save_model(tmp_path / "model", make_method(tiny_backbone(), 2), backbone, TRANSFORMS)
    method, loaded, _ = load_model(tmp_path / "model")
    assert loaded.fingerprint == backbone.fingerprint
    assert loaded.vit is method.backbone
    write_tensors(weights, tiny_backbone(seed=1).vit.state_dict())
    with pytest.raises(ModelError, match=rf"made for the backbone {backbone.fingerprint}, this one is \w+; load the"):
        load_model(tmp_path / "model")


def test_a_backbone_built_by_hand_must_be_given_again(tmp_path: Path, tiny_backbone: MakeBackbone) -> None:
    by_hand = replace(tiny_backbone(), settings=None)
    save_model(tmp_path, make_method(tiny_backbone(), 2), by_hand, TRANSFORMS)
    with pytest.raises(ModelError, match=r"backbone built by hand; give it again: clare\.load\(folder, backbone\)"):
        load_model(tmp_path)
    assert load_model(tmp_path, tiny_backbone())[0].classes == ["class 0", "class 1"]
    with pytest.raises(ModelError, match=r"made for the backbone .* load the same weights"):
        load_model(tmp_path, tiny_backbone(seed=1))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{", r"model\.json is not valid JSON .*; restore the folder from a copy"),
        ("[]", r"is not a model's manifest: it names no format"),
        ("{}", r"is not a model's manifest: it names no format"),
        ('{"format": 99}', r"has format 99, this version reads 1 to 3; install a newer clare"),
        ('{"format": 1, "seed": 0}', r"does not name method, structure, backbone, .*; restore the folder"),
        ('{"format": 2, "seed": 0}', r"does not name method, .*, history, kept, num_kept; restore the folder"),
        ('{"format": "2"}', r"has format 2, this version reads 1 to 3"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(
    saved: Path, tiny_backbone: MakeBackbone, manifest: str, message: str
) -> None:
    (saved / "model.json").write_text(manifest)
    with pytest.raises(ModelError, match=message):
        load_model(saved, tiny_backbone())


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no model: model\.json is missing; give the folder that was saved"):
        load_model(tmp_path)


def test_a_mistyped_folder_is_answered_with_the_nearest(saved: Path) -> None:
    mistyped = saved.parent / saved.name[:-1]
    with pytest.raises(ModelError, match=rf"^there is no folder {mistyped} \(did you mean '{saved.name}'\?\); give "):
        load_model(mistyped)


@pytest.mark.parametrize("place", [0, 100, -1])
def test_damaged_tensors_are_noticed(saved: Path, tiny_backbone: MakeBackbone, place: int) -> None:
    path = next(saved.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"tensors-\w+\.safetensors is damaged: .*; restore the folder from a copy"):
        load_model(saved, tiny_backbone())


def test_missing_tensors_are_named(saved: Path, tiny_backbone: MakeBackbone) -> None:
    next(saved.glob("*.safetensors")).unlink()
    with pytest.raises(ModelError, match=r"tensors-\w+\.safetensors cannot be read \(No such file"):
        load_model(saved, tiny_backbone())


def test_a_method_or_a_setting_that_is_not_known_is_named(saved: Path, tiny_backbone: MakeBackbone) -> None:
    method = json.loads((saved / "model.json").read_text())["method"]
    edit(saved, method={**method, "name": "finetun"})
    with pytest.raises(SettingsError, match=r"no method 'finetun' \(did you mean 'finetune'\?\)"):
        load_model(saved, tiny_backbone())
    edit(saved, method={**method, "epoks": 1})
    with pytest.raises(SettingsError, match=r"no setting 'method\.epoks' \(did you mean 'epochs'\?\)"):
        load_model(saved, tiny_backbone())
