"""The study's scripts, which are not part of the package, and small runs for them."""

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_runs
import pytest

from clare.presets.load import make_experiment

STUDY = Path(__file__).parents[2] / "studies" / "vits14-112"

Script = Callable[[str], ModuleType]
WriteRun = Callable[..., Path]
Add = Callable[..., Path]


@pytest.fixture(scope="session")
def script() -> Iterator[Script]:
    """Return load(name): a script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDY))
        yield importlib.import_module


@pytest.fixture(scope="session")
def write_run() -> WriteRun:
    """Return write(folder, method, ..., preset): a run folder as the engine writes it."""
    return fake_runs.write_run


@pytest.fixture(scope="session")
def write(script: Script) -> ModuleType:
    """Return the module that writes the pages."""
    return script("write_results")


@pytest.fixture(scope="session")
def study(script: Script) -> Any:
    """Return the study."""
    return script("study").read_study()


@pytest.fixture
def read(write: ModuleType, tmp_path: Path) -> Callable[[], Any]:
    """Return read(): all results below tmp_path, and the claims as they decide them."""
    return lambda: write.read_all(tmp_path / "home")


@pytest.fixture
def add(script: Script, study: Any, write_run: WriteRun, tmp_path: Path) -> Add:
    """Return add(stream, row, skill, seed, num_tasks, ...): a result below tmp_path/home."""

    def add(
        stream: str,
        row: str,
        *overrides: str,
        skill: float = 0.8,
        seed: int = 1,
        num_tasks: int | None = None,
        **more: Any,
    ) -> Path:
        method = study.row(row).method
        preset = study.presets[stream].replace("+", f"+{STUDY.parents[1]}/")
        settings = make_experiment(preset, method, (*study.row(row).settings_on(stream), *overrides), seed)
        length = num_tasks or int(re.findall(r"-(\d+)x", stream)[0])
        folder = write_run(
            tmp_path / "folders" / f"{stream}-{row}-{'-'.join(overrides)}-{seed}",
            method,
            [1] * length if method != "joint" else [length],
            skill=skill,
            decay=0.0,
            seed=seed + round(1000 * skill),
            preset=settings.model_dump(mode="json"),
            **more,
        )
        assert script("collect_results").main([str(folder), "--home", str(tmp_path / "home")]) == []
        return folder

    return add
