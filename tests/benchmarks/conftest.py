"""The benchmark scripts, which are not part of the package."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return load(name): a benchmark script as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module
