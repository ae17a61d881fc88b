"""What each view of an APER run is worth."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from measured_runs import run_of

from clare.errors import ModelError
from clare.report.record import read_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def views(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("measure_views")


@pytest.mark.parametrize("strategy", ["discriminant", "quadratic"])
def test_views_are_those_of_the_run_and_of_frozen_features(
    views: ModuleType, tiny_preset: Path, tmp_path: Path, strategy: str
) -> None:
    head = f"method.head.strategy={strategy}"
    folder = run_of(tiny_preset, tmp_path / "aper", "aper-adapter", head, "method.learning_rate=0.5")
    views.main([str(folder), "--results", str(tmp_path / "results")], views.measure, "views")
    (path,) = (tmp_path / "results" / "views" / "test").rglob("*.json")
    found = json.loads(path.read_text())["final_accuracy"]
    assert set(found) == {"bare", "tuned", "both", "added", "run"}
    assert found["both"] == found["run"]
    frozen = run_of(tiny_preset, tmp_path / "linear", "linear", head)
    assert found["bare"] == pytest.approx(read_run(frozen).tasks[-1].seen, abs=1e-4)


def test_a_run_of_one_view_is_refused(views: ModuleType, tiny_preset: Path, tmp_path: Path) -> None:
    folder = run_of(tiny_preset, tmp_path / "clare", "clare", "method.head.strategy=discriminant")
    with pytest.raises(ModelError, match=r"measure a run of aper-adapter with head\.strategy=discriminant"):
        views.measure(read_run(folder))
    folder = run_of(tiny_preset, tmp_path / "means", "aper-adapter", "method.head.strategy=prototype")
    with pytest.raises(ModelError, match="with prototype rows"):
        views.measure(read_run(folder))


def test_the_documented_figures_are_those_of_the_script() -> None:
    (path,) = (ROOT / "results/views/validation/cub200-50x4+vits14-112").iterdir()
    found = {name: f"{100 * value:.1f} %" for name, value in json.loads(path.read_text())["final_accuracy"].items()}
    told = f"bare features alone end at {found['bare']}, tuned ones alone at {found['tuned']}, both side by side at "
    text = " ".join((ROOT / "docs/methods/clare-plus.md").read_text().split())
    assert told + found["both"] in text
