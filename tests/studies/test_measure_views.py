"""What each view of an APER run is worth."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from measured_runs import run_of

from clare.errors import ModelError
from clare.report.record import read_run


@pytest.fixture(scope="session")
def views(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("measure_views")


@pytest.mark.parametrize("kind", ["discriminant", "quadratic"])
def test_views_are_those_of_the_run_and_of_frozen_features(
    views: ModuleType, tiny_preset: Path, tmp_path: Path, kind: str
) -> None:
    head = f"method.head.kind={kind}"
    folder = run_of(tiny_preset, tmp_path / "aper", "aper-adapter", head, "method.learning_rate=0.5")
    found = views.measure(read_run(folder))["final_accuracy"]
    assert set(found) == {"bare", "tuned", "both", "added", "run"}
    assert found["both"] == found["run"]
    frozen = run_of(tiny_preset, tmp_path / "linear", "linear", head)
    assert found["bare"] == pytest.approx(read_run(frozen).tasks[-1].seen, abs=1e-4)


def test_a_run_of_one_view_is_refused(views: ModuleType, tiny_preset: Path, tmp_path: Path) -> None:
    folder = run_of(tiny_preset, tmp_path / "clare", "clare", "method.head.kind=discriminant")
    with pytest.raises(ModelError, match=r"measure a run of aper-adapter with head\.kind=discriminant"):
        views.measure(read_run(folder))
    folder = run_of(tiny_preset, tmp_path / "means", "aper-adapter", "method.head.kind=prototype")
    with pytest.raises(ModelError, match="with prototype rows"):
        views.measure(read_run(folder))
