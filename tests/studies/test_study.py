"""The study's rows mean what was run: every kept result can be repeated by the command it names."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clare.errors import RunError
from clare.presets.load import make_experiment
from clare.presets.schema import completed
from clare.upgrade import upgraded_override

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "studies" / "vits14-112"
STREAMS = sorted(path for place in ("results", "validation") for path in (STUDY / place).iterdir())


@pytest.fixture(scope="session")
def module(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("study")


def meant_by(command: str) -> dict[str, Any]:
    """Return the settings that a command line means."""
    words = shlex.split(command)
    assert words[:2] == ["clare", "train"]
    options = [(words[index], words[index + 1]) for index in range(3, len(words), 2)]
    overrides = [upgraded_override(value) for key, value in options if key == "--set"]
    preset = words[2].replace("+", f"+{ROOT}/")
    experiment = make_experiment(preset, dict(options)["--method"], overrides, int(dict(options)["--seed"]))
    return experiment.model_dump(mode="json")


@pytest.mark.parametrize("folder", STREAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_commands_and_rows_mean_the_settings_of_results(module: ModuleType, study: Any, folder: Path) -> None:
    paths = sorted(folder.glob("*/*.json"))
    assert paths
    for path in paths:
        result = json.loads(path.read_bytes())
        assert path.parts[-3:] == (result["stream"], result["row"], f"{result['seed']}.json")
        settings = {**result["settings"], "name": result["preset"], "seed": result["seed"]}
        recorded = module.telling(completed(settings))
        assert module.telling(meant_by(result["command"])) == recorded, path
        experiment = study.experiment(result["stream"], study.row(result["row"]), result["seed"])
        assert module.telling(experiment.model_dump(mode="json")) == recorded, path
        assert module.settings_hash(result["settings"]) == result["settings_hash"], path
        assert "commit" in result, path


@pytest.mark.parametrize(
    "path", sorted([*(STUDY / "drift").rglob("*.json"), *(STUDY / "views").rglob("*.json")]), ids=str
)
def test_what_was_measured_later_is_of_a_row(study: Any, path: Path) -> None:
    result = json.loads(path.read_bytes())
    assert path.parts[-3:] == (result["stream"], result["row"], f"{result['seed']}.json")
    meant = meant_by(result["command"])
    assert completed({**meant, "method": result["settings"]})["method"] == meant["method"]
    assert study.experiment(result["stream"], study.row(result["row"])).method == meant["method"]


def test_every_row_that_was_run_is_found_by_its_settings(study: Any) -> None:
    for row, stream in (("clare", "cub200-50x4"), ("linear-plus-head", "cub200-50x4"), ("clare-l2", "quickdraw-20x10")):
        settings = study.experiment(stream, study.row(row), 7).model_dump(mode="json")
        assert study.find(stream, settings).id == row
    other = study.experiment("cub200-50x4", study.row("clare")).model_dump(mode="json")
    other["method"]["learning_rate"] = 0.123
    assert study.find("cub200-50x4", other) is None


def test_an_unknown_row_is_answered_with_the_nearest(study: Any) -> None:
    with pytest.raises(RunError, match=r"no row 'clare-randm-mask' \(did you mean 'clare-random-mask'\?\)"):
        study.row("clare-randm-mask")


@pytest.mark.parametrize("text", ["rows = 3", "[rows.x]\nmethod = 'clare'\n", "[", "[rows.'A B']\nmethod = 'clare'"])
def test_a_damaged_study_is_told_in_a_sentence(module: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(RunError, match=r"study\.toml is no valid study .*; correct it"):
        module.read_study(tmp_path / "study.toml")


def test_the_overlay_differs_from_the_public_one_in_its_weights_alone() -> None:
    for preset in ("cifar100-10x10", "cub200-50x4"):
        ours = make_experiment(f"{preset}+{STUDY}/vits14-112.toml", "clare-plus").model_dump(mode="json")
        public = make_experiment(f"{preset}+vits14-dinov2", "clare-plus").model_dump(mode="json")
        assert [key for key in ours if ours[key] != public[key]] == ["name", "backbone"]
        assert [key for key, value in ours["backbone"].items() if public["backbone"][key] != value] == [
            "name",
            "weights",
        ]
