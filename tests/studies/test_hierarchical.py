"""Hierarchical backbones on drawings: the study's commands agree, and its models learn on a few drawings."""

import importlib.util
import json
import shlex
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from clare.backbones.pretrain import PretrainSettings, pretrain
from clare.backbones.vit import load_backbone
from clare.data.sources import Dataset
from clare.data.stream import Stream
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.files import write_tensors
from clare.presets.load import make_experiment, values_of
from clare.report.record import read_run
from clare.settings import build_settings

FOLDER = Path(__file__).parents[2] / "studies/hierarchical"
NAMES = ("convnext", "swin")


def settings_of(name: str, **few: Any) -> PretrainSettings:
    """Return the recipe of a model as the overlay names it."""
    backbone = tomllib.loads((FOLDER / f"{name}.toml").read_text())["backbone"]
    return build_settings(PretrainSettings, {key: backbone[key] for key in ("name", "architecture")} | few, "")


def result_of(name: str) -> dict[str, Any]:
    """Return what the runs on a model gave."""
    found: dict[str, Any] = json.loads((FOLDER / "results" / f"{name}.json").read_text())
    return found


@pytest.fixture
def hierarchical() -> ModuleType:
    """The script that writes the table."""
    spec = importlib.util.spec_from_file_location("hierarchical_collect", FOLDER / "collect.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_the_command_pretrains_the_model_of_the_overlay(name: str) -> None:
    lines = (FOLDER / "README.md").read_text().splitlines()
    words = shlex.split(next(line for line in lines if line.startswith(f"clare pretrain --out {name}.safetensors")))
    told = [word for before, word in pairwise(words) if before == "--set"]
    settings = build_settings(PretrainSettings, values_of(told), "")
    few = {key: getattr(settings, key) for key in ("epochs", "precision")}
    assert settings == settings_of(name, **few)
    assert settings.model_dump(mode="json") == result_of(name)["pretraining"]["settings"]


@pytest.mark.parametrize("name", NAMES)
def test_the_runs_had_the_rates_of_the_overlay(name: str) -> None:
    rates = tomllib.loads((FOLDER / f"{name}.toml").read_text())["methods"]
    methods = result_of(name)["methods"]
    assert {method: methods[method]["settings"]["learning_rate"] for method in methods} == {
        method: rates[method]["learning_rate"] for method in methods
    }


def test_the_table_is_what_the_results_say(hierarchical: ModuleType) -> None:
    page = (FOLDER / "README.md").read_text()
    lines = [line for name in NAMES for line in hierarchical.table(name, result_of(name))]
    assert hierarchical.START + "\n".join(lines).rstrip() + "\n" + hierarchical.END in page


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_pretrained_and_four_methods_learn_with_it(
    name: str, tiny_stream: Callable[..., Stream], tmp_path: Path
) -> None:
    task = tiny_stream(num_train=4).tasks[0]
    drawings = Dataset("drawings", task.classes, task.train, task.train)
    found = pretrain(drawings, settings_of(name, epochs=1, batch_size=4), torch.device("cpu"), lambda *_: None)
    write_tensors(tmp_path / "weights.safetensors", found.weights)
    few = ("stream.increment=2", "stream.num_classes=4", "stream.train_per_class=4", "method.epochs=1")
    for method in ("clare", "linear", "ranpac", "finetune"):
        own = {"clare": ("method.probe_epochs=1",), "ranpac": ("method.head.num_projected=50",)}.get(method, ())
        weights = f"backbone.weights={tmp_path / 'weights.safetensors'}"
        preset = f"quickdraw-20x10+{FOLDER / name}.toml"
        experiment = make_experiment(preset, method, [*few, *own, weights, "engine.device=cpu"], 1993)
        run_experiment(experiment, tmp_path / method, Silence())
        record = read_run(tmp_path / method)
        assert record.finished
        assert len(record.tasks) == 2
        assert record.start.backbone_hash == load_backbone(experiment.backbone).fingerprint
        if method == "clare":
            assert all(each.num_claimed for each in record.tasks)


def test_the_docs_show_the_same_figures() -> None:
    page = (FOLDER.parents[1] / "docs" / "own_backbone.md").read_text()
    for name, title in zip(NAMES, ("ConvNeXt", "Swin"), strict=True):
        methods = result_of(name)["methods"]
        cells = [
            100 * methods[key]["figures"]["final_accuracy"][0] for key in ("clare", "linear", "finetune", "ranpac")
        ]
        assert f"| {title} | {' | '.join(f'{cell:.1f}' for cell in cells)} |" in page
