"""The scripts, which are not part of the package, and small runs for them."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]
SCRIPTS = TESTS.parent / "scripts"

Script = Callable[[str], ModuleType]
WriteRun = Callable[..., Path]


@pytest.fixture(scope="session")
def script() -> Iterator[Script]:
    """Return load(name): a script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module


@pytest.fixture(scope="session")
def write_run() -> Iterator[WriteRun]:
    """Return write(folder, method, ..., preset): a run folder as the engine writes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TESTS / "report"))
        yield importlib.import_module("fake_runs").write_run
