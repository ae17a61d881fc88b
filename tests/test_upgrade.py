"""Settings of earlier releases under the names of today."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from clare.errors import SettingsError
from clare.methods import METHODS
from clare.presets.load import make_experiment
from clare.presets.schema import completed
from clare.settings import build_settings
from clare.upgrade import RENAMED, upgraded_experiment, upgraded_method, upgraded_override

SAVED = Path(__file__).parent / "releases"
RUNS = sorted(SAVED.rglob("preset.json"))
MODELS = sorted(SAVED.rglob("model.json"))
# All that the table of a head had, at its defaults.
FLAT = {
    "form": "cosine",
    "strategy": "prototype",
    "read_blocks": 1,
    "read_patches": False,
    "read_centre": False,
    "read_looks": 1,
    "scale": 20.0,
    "learnt_scale": False,
    "align_epochs": 10,
    "align_samples": 64,
    "align_learning_rate": 0.1,
    "align_batch_size": 256,
    "shrinkage": 0.2,
    "own_share": 0.1,
    "num_directions": 32,
    "num_projected": 4000,
    "ridge_share": 0.1,
}
USUAL = {"blocks": 1, "patches": False, "centre": False, "views": 1}


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_a_runs_experiment_is_complete_under_todays_names(path: Path) -> None:
    experiment = completed(json.loads(path.read_text()))
    settings = {key: value for key, value in experiment["method"].items() if key != "name"}
    kind = METHODS.get(experiment["method"]["name"]).settings_type
    assert build_settings(kind, settings, "method").model_dump(mode="json") == settings


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_a_models_settings_are_those_of_its_method(path: Path) -> None:
    values = upgraded_method(json.loads(path.read_text())["method"])
    name = values.pop("name")
    built = build_settings(METHODS.get(name).settings_type, values, "method").model_dump(mode="json")
    # What came since has its default; nothing that was saved is lost or changed.
    for key, value in values.items():
        assert built[key] == value or built[key] | value == built[key], key


@pytest.mark.parametrize("strategy", ["trained", "prototype", "aligned", "discriminant", "quadratic", "projected"])
@pytest.mark.parametrize("method", ["clare", "linear"])
def test_what_acted_of_a_flat_head_is_kept_and_nothing_else(method: str, strategy: str) -> None:
    values = upgraded_method({"name": method, "epochs": 3, "head": {**FLAT, "strategy": strategy}})
    assert values["features"] == USUAL
    assert values.pop("name") == method
    built = build_settings(METHODS.get(method).settings_type, values, "method").model_dump(mode="json")
    assert (built["epochs"], built["head"]) == (3, values["head"])
    assert built["head"]["kind"] == {"projected": "ridge"}.get(strategy, strategy)


@pytest.mark.parametrize("method", ["l2p", "ease", "full-finetune"])
def test_a_method_with_features_of_its_own_was_told_to_read_nothing_else(method: str) -> None:
    values = upgraded_method({"name": method, "head": FLAT})
    assert "features" not in values
    values.pop("name")
    build_settings(METHODS.get(method).settings_type, values, "method")


def test_ranpacs_regression_is_in_its_head() -> None:
    old = {"name": "ranpac", "num_projected": 50, "ridge": 2.0, "precision": "float64", "head": {**FLAT, "scale": 5.0}}
    values = upgraded_method(old)
    assert values["head"] == {"kind": "ridge", "scale": 5.0, "num_projected": 50, "ridge": 2.0, "precision": "float64"}
    assert set(values) == {"name", "features", "head"}


def test_what_is_of_today_stays_as_it_is() -> None:
    for name in METHODS:
        values = make_experiment("cub200-50x4+vits14-dinov2", name).model_dump(mode="json")
        before = copy.deepcopy(values)
        assert upgraded_experiment(values) == before == values


def test_a_users_old_preset_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(
        'extends = "quickdraw"\n'
        '[methods.clare.head]\nstrategy = "quadratic"\nread_blocks = 3\nread_looks = 2\nown_share = 0.05\n'
        'align_epochs = 3\n[methods.ranpac]\nnum_projected = 99\nhead = {strategy = "prototype", scale = 4.0}\n'
        '[methods.simplecil.head]\nstrategy = "prototype"\n[methods.l2p.head]\nread_blocks = 1\n'
    )
    (tmp_path / "over.toml").write_text(
        '[backbone]\nname = "quickdraw-vit"\n[datasets.quickdraw.methods.clare.head]\nread_patches = true\n'
    )
    preset = f"{tmp_path / 'old.toml'}+{tmp_path / 'over.toml'}"
    clare = make_experiment(preset, "clare").method
    assert clare["features"] == {"blocks": 3, "patches": True, "centre": False, "views": 2}
    assert (clare["head"]["kind"], clare["head"]["own_share"]) == ("quadratic", 0.05)
    assert make_experiment(preset, "ranpac").method["head"]["num_projected"] == 99
    for name in ("simplecil", "l2p"):
        make_experiment(preset, name)


@pytest.mark.parametrize("old", list(RENAMED))
def test_an_old_name_that_is_typed_is_answered_with_the_new_one(old: str) -> None:
    with pytest.raises(SettingsError, match=rf"'method\.{old}' any more; it is called 'method\.{RENAMED[old]}' now"):
        make_experiment("quickdraw", "ranpac", [f"method.{old}=1"])
    assert upgraded_override(f"method.{old}=1") == f"method.{RENAMED[old]}=1"


def test_an_old_kind_that_is_typed_is_answered_with_the_new_one() -> None:
    with pytest.raises(SettingsError, match=r"'method\.head\.kind' got 'projected'; it is called ridge now"):
        make_experiment("quickdraw", "clare", ["method.head.kind=projected"])
    assert upgraded_override("method.head.strategy=projected") == "method.head.kind=ridge"
    assert upgraded_override("method.epochs=3") == "method.epochs=3"


@pytest.mark.parametrize(
    "odd", [{"method": 3}, {"methods": {"clare": 3}}, {"datasets": {"cub200": 3}}, {"overrides": 1}]
)
def test_what_is_no_table_is_left_for_those_who_refuse_it(odd: dict[str, Any]) -> None:
    assert upgraded_experiment(odd) == odd
