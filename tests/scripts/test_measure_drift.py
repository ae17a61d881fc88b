"""What later tasks taught the features of a run, and what its head lost on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from measured_runs import run_of

from clare.errors import ModelError
from clare.methods.clare import Clare
from clare.model.folder import load_model
from clare.report.record import read_run

ROOT = Path(__file__).parents[2]
HEAD = ("method.head.strategy=discriminant", "method.learning_rate=0.5", "method.probe_epochs=2")


@pytest.fixture(scope="session")
def drift(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("measure_drift")


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


@pytest.mark.parametrize(
    ("row", "preset", "name"),
    [
        ("CIFAR-100, first 5 of 10 tasks", "cifar100-10x10", "head.read_looks=1,stream.num_classes=50-"),
        (
            "CIFAR-100, first 25 of 50 tasks, all patches",
            "cifar100-50x2",
            "head.read_centre=false,head.read_looks=1,head.shrinkage=0.03,stream.num_classes=50-",
        ),
        ("CUB-200, 10 tasks, half the rate", "cub200-10x20", "head.read_looks=1,learning_rate=0.4-"),
        (
            "CUB-200, 50 tasks, no patches",
            "cub200-50x4",
            "head.read_centre=false,head.read_looks=1,head.read_patches=false-",
        ),
    ],
)
def test_the_documented_figures_are_those_of_the_script(row: str, preset: str, name: str) -> None:
    path = ROOT / f"results/drift/validation/{preset}+vits14-112/clare-plus-{name}1993.json"
    result = json.loads(path.read_text())["final_accuracy"]
    cells = [f"{100 * result[state]:.1f}" for state in ("frozen", "first", "last", "run")]
    assert f"| {row} | {' | '.join(cells)} |" in (ROOT / "docs/methods/clare-plus.md").read_text()
