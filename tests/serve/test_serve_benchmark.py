"""The serving benchmark: what it sends, how it counts, and that it measures a service."""

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from fake_service import FakeModel, png

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return load(name): a benchmark script as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_waits_become_percentiles(script: Callable[[str], ModuleType]) -> None:
    waits = [number / 1000 for number in range(101)]
    assert script("serving_load").percentiles(waits) == {"p50_ms": pytest.approx(50), "p99_ms": pytest.approx(99)}


def test_medians_are_taken_over_rounds(script: Callable[[str], ModuleType]) -> None:
    loads = [{"images_per_second": value, "p50_ms": 2 * value} for value in (50.0, 90.0, 60.0)]
    found = script("serving").summarise([100.0, 100.0, 200.0], loads, loads[:1])
    assert found["ratio_of_each_round"] == [0.5, 0.9, 0.3]
    assert (found["ratio"], found["loop_images_per_second"]) == (0.5, 100.0)
    assert found["http"] == {"images_per_second": 60.0, "p50_ms": 120.0}


def test_a_service_is_put_under_load(script: Callable[[str], ModuleType], folder: Path, tmp_path: Path) -> None:
    serving = script("serving")
    asked: list[int] = []

    class Counting(FakeModel):
        def guess_pixels(self, names, images, top=5):  # type: ignore[no-untyped-def]
            asked.append(len(images))
            time.sleep(0.002)
            return super().guess_pixels(names, images, top)

    images = tmp_path / "images"
    images.mkdir()
    for number in range(3):
        (images / str(number)).write_bytes(png(number))
    with serving.serving(Counting(folder), serving.Limits()) as port:
        found = serving.run_load(port, images, 8, 0.3)
    assert found["images_per_second"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    # Single images of several connections were predicted together.
    assert max(asked) > 1
    assert "serving_load" in sys.modules
