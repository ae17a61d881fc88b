"""What later tasks taught the features of a run, and what its head lost on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import ModelError
from clare.methods.clare import Clare
from clare.model.folder import load_model
from clare.presets.load import make_experiment
from clare.report.record import read_run

ROOT = Path(__file__).parents[2]
HEAD = ("method.head.strategy=discriminant", "method.learning_rate=0.5", "method.probe_epochs=2")


@pytest.fixture(scope="session")
def drift(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("measure_drift")


def run_of(preset: Path, folder: Path, method: str, *overrides: str) -> Path:
    """Make a run and return its folder."""
    run_experiment(make_experiment(str(preset), method, overrides), folder, Silence())
    return folder


def test_a_run_lies_beside_heads_that_know_all_images(drift: ModuleType, tiny_preset: Path, tmp_path: Path) -> None:
    folder = run_of(tiny_preset, tmp_path / "plus", "clare-plus", *HEAD)
    drift.main([str(folder), "--results", str(tmp_path / "results")])
    (path,) = (tmp_path / "results" / "drift" / "test").rglob("*.json")
    result = json.loads(path.read_text())
    assert path.name.startswith("clare-plus-head.strategy=discriminant")
    last = read_run(folder).tasks[-1]
    assert result["final_accuracy"]["run"] == pytest.approx(last.seen, abs=1e-4)
    assert result["per_task"]["run"] == pytest.approx(last.per_task, abs=1e-4)
    assert {len(values) for values in result["per_task"].values()} == {3}
    # Before the first task an adapter adds nothing: its features are those of frozen ones under the same head.
    frozen = run_of(tiny_preset, tmp_path / "linear", "linear", "method.head.strategy=discriminant")
    assert result["final_accuracy"]["frozen"] == pytest.approx(read_run(frozen).tasks[-1].seen, abs=1e-4)


def test_after_one_task_there_is_nothing_to_lose(drift: ModuleType, tiny_preset: Path, tmp_path: Path) -> None:
    folder = run_of(tiny_preset, tmp_path / "one", "clare", *HEAD, "stream.num_classes=2")
    found = drift.measure(read_run(folder))["final_accuracy"]
    assert found["run"] == found["first"] == found["last"]


def test_states_are_those_that_tasks_left(drift: ModuleType, tiny_preset: Path, tmp_path: Path) -> None:
    short = run_of(tiny_preset, tmp_path / "short", "clare", *HEAD, "stream.num_classes=2")
    long = run_of(tiny_preset, tmp_path / "long", "clare", *HEAD)
    methods = [load_model(folder / "model")[0] for folder in (short, long)]
    assert all(isinstance(method, Clare) for method in methods)
    states = [drift.states_of(method) for method in methods]
    assert torch.equal(states[0]["first"], states[1]["first"])
    assert torch.equal(states[0]["first"], states[0]["last"])
    assert not torch.equal(states[1]["first"], states[1]["last"])


def test_a_run_without_claims_is_refused(drift: ModuleType, tiny_preset: Path, tmp_path: Path) -> None:
    folder = run_of(tiny_preset, tmp_path / "fine", "finetune", "method.head.strategy=prototype")
    with pytest.raises(ModelError, match="measure a run of clare or clare-plus with a mask"):
        drift.measure(read_run(folder))


def test_the_documented_figures_are_those_of_the_script() -> None:
    name = "clare-plus-epochs=10,probe_epochs=3,row_epochs=0-1993.json"
    path = ROOT / "results/drift/validation/cub200-10x20+vits14-112" / name
    result = json.loads(path.read_text())["final_accuracy"]
    text = " ".join((ROOT / "docs/methods/clare-plus.md").read_text().split())
    told = {name: f"{100 * value:.1f}" for name, value in result.items()}
    assert f"The run ended at {told['run']} %" in text
    assert f"reaches {told['last']} % with the adapter as the last task left it" in text
    assert f"{told['first']} % as the first left it, and {told['frozen']} % with the frozen backbone" in text
    gains = (result["first"] - result["frozen"], result["last"] - result["first"])
    assert (
        "the first task alone teaches {:.1f} points and the nine after it {:.1f}".format(*(100 * g for g in gains))
        in text
    )
