"""What later tasks taught the features of a run, and what its head lost on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from measured_runs import run_of

from clare.errors import ModelError
from clare.methods.clare import Clare
from clare.model.folder import load_model
from clare.report.record import read_run

HEAD = ("method.head.kind=discriminant", "method.learning_rate=0.5", "method.probe_epochs=2")


@pytest.fixture(scope="session")
def drift(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("measure_drift")


def test_a_run_lies_beside_heads_that_know_all_images(drift: ModuleType, tiny_preset: Path, tmp_path: Path) -> None:
    folder = run_of(tiny_preset, tmp_path / "plus", "clare-plus", *HEAD)
    result = drift.measure(read_run(folder))
    last = read_run(folder).tasks[-1]
    assert result["final_accuracy"]["run"] == pytest.approx(last.seen, abs=1e-4)
    assert result["per_task"]["run"] == pytest.approx(last.per_task, abs=1e-4)
    assert {len(values) for values in result["per_task"].values()} == {3}
    # Before the first task an adapter adds nothing: its features are those of frozen ones under the same head.
    frozen = run_of(tiny_preset, tmp_path / "linear", "linear", "method.head.kind=discriminant")
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
    folder = run_of(tiny_preset, tmp_path / "fine", "finetune", "method.head.kind=prototype")
    with pytest.raises(ModelError, match="measure a run of clare or clare-plus with a mask"):
        drift.measure(read_run(folder))


def test_a_measured_run_has_the_folder_of_its_row(
    drift: ModuleType, study: Any, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    preset = study.experiment("quickdraw-20x10", study.row("clare-random-mask"), 5).model_dump(mode="json")
    folder = write_run(tmp_path / "run", preset=preset)
    figures = {"seed": 5, "final_accuracy": {"frozen": 0.25}}
    drift.main([str(folder), "--home", str(tmp_path / "home")], lambda run: figures)
    kept = json.loads((tmp_path / "home/drift/quickdraw-20x10/clare-random-mask/5.json").read_text())
    assert kept["final_accuracy"] == {"frozen": 0.25}
    command = "clare train quickdraw-20x10 --method clare --seed 5 --set method.mask=random"
    assert (kept["stream"], kept["row"], kept["command"]) == ("quickdraw-20x10", "clare-random-mask", command)
