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


@pytest.mark.parametrize(
    ("row", "preset"),
    [("CIFAR-100, first 25 of 50 tasks", "cifar100-50x2"), ("CUB-200, 50 tasks", "cub200-50x4")],
)
def test_the_documented_figures_are_those_of_the_script(row: str, preset: str) -> None:
    (path,) = (ROOT / f"results/views/validation/{preset}+vits14-112").iterdir()
    result = json.loads(path.read_text())["final_accuracy"]
    cells = [f"{100 * result[view]:.1f}" for view in ("bare", "tuned", "added", "both")]
    assert f"| {row} | {' | '.join(cells)} |" in (ROOT / "docs/methods/clare-plus.md").read_text()
