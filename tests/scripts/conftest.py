"""The scripts, which are not part of the package, and small runs for them."""

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_runs
import pytest

from clare.presets.load import make_experiment

SCRIPTS = Path(__file__).parents[2] / "scripts"

Script = Callable[[str], ModuleType]
WriteRun = Callable[..., Path]
Add = Callable[..., Path]


@pytest.fixture(scope="session")
def script() -> Iterator[Script]:
    """Return load(name): a script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module


@pytest.fixture(scope="session")
def write_run() -> WriteRun:
    """Return write(folder, method, ..., preset): a run folder as the engine writes it."""
    return fake_runs.write_run


@pytest.fixture(scope="session")
def write(script: Script) -> ModuleType:
    """Return the module under test."""
    return script("write_results")


@pytest.fixture(scope="session")
def boards(script: Script) -> ModuleType:
    """Return the module of groups and differences."""
    return script("result_boards")


@pytest.fixture(scope="session")
def claims(script: Script) -> ModuleType:
    """Return the module of claims."""
    return script("result_claims")


@pytest.fixture
def add(script: Script, write_run: WriteRun, tmp_path: Path) -> Add:
    """Return add(preset, method, *overrides, skill, seed, num_tasks, ...): a result below tmp_path/results."""

    def add(
        preset: str,
        method: str,
        *overrides: str,
        skill: float = 0.8,
        seed: int = 1,
        num_tasks: int | None = None,
        **more: Any,
    ) -> Path:
        settings = make_experiment(preset, method, overrides, seed).model_dump(mode="json")
        length = num_tasks or int(re.findall(r"-(\d+)x", preset)[0])
        name = f"{preset}-{method}-{'-'.join(overrides)}-{seed}".replace("/", "_")
        folder = write_run(
            tmp_path / "folders" / name,
            method,
            [1] * length if method != "joint" else [length],
            skill=skill,
            decay=0.0,
            seed=seed + round(1000 * skill),
            preset=settings,
            **more,
        )
        assert script("collect_results").main([str(folder), "--results", str(tmp_path / "results")]) == []
        return folder

    return add
