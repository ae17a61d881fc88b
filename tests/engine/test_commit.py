"""A run records the commit of the source that made it."""

import json
import subprocess
from pathlib import Path

import pytest

from clare.engine.commit import source_commit
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.presets.load import make_experiment


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, whoever its user is."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a package in a repository."""
    folder = tmp_path / "src" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    return folder


def test_the_commit_is_told_with_what_differs_from_it(package: Path) -> None:
    assert source_commit(package) is None
    git(package, "add", "__init__.py")
    assert source_commit(package) is None
    git(package, "commit", "-qm", "x")
    commit = git(package, "rev-parse", "HEAD")
    assert source_commit(package) == commit
    (package.parent / "other.txt").write_text("not of the package")
    assert source_commit(package) == commit
    (package / "__init__.py").write_text("x = 1")
    assert source_commit(package) == f"{commit}+changes"


def test_without_a_repository_or_git_there_is_none(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / ".venv" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert source_commit(installed) is None
    monkeypatch.setenv("PATH", "")
    assert source_commit(package) is None


def test_a_run_records_it(tiny_preset: Path, tmp_path: Path) -> None:
    run_experiment(make_experiment(str(tiny_preset), "simplecil"), tmp_path / "run", Silence())
    environment = json.loads((tmp_path / "run/environment.json").read_text())
    assert environment["commit"] == source_commit()


def test_a_copy_without_history_is_told_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").write_text("")
    monkeypatch.setenv("CLARE_COMMIT", "abc")
    assert source_commit(tmp_path) == "abc"
