"""Runs for scripts that measure finished ones."""

from pathlib import Path

from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.presets.load import make_experiment


def run_of(preset: Path, folder: Path, method: str, *overrides: str) -> Path:
    """Make a run and return its folder."""
    run_experiment(make_experiment(str(preset), method, overrides), folder, Silence())
    return folder
