"""The wheel: small, the package alone, and all that a stranger does first works where only it is installed."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from own_worlds import drawings, write_pictures
from PIL import Image

from clare.testing.world import write_preset
from clare.version import __version__

ROOT = Path(__file__).parents[1]
MOST_BYTES = 22_000_000
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")

pytestmark = pytest.mark.slow


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command that sees nothing of this checkout, and return what it prints."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, since setuptools leaves a build folder where it builds."""
    copy = tmp_path_factory.mktemp("sources")
    without = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        source = ROOT / name
        shutil.copytree(source, copy / name, ignore=without) if source.is_dir() else shutil.copy(source, copy / name)
    # Without isolation, which would fetch setuptools from the network.
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "dist")
    run(sys.executable, "-m", "pip", "wheel", *options, ".", cwd=copy)
    (built,) = (copy / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin folder of a new environment that has the wheel and borrows what it depends on from ours."""
    folder = tmp_path_factory.mktemp("stranger") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    python = folder / "bin" / "python"
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # A path in a .pth file is searched, but the .pth files there, one of which names this checkout, are not read.
    (place / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    return python.parent


def test_the_wheel_is_small_and_holds_the_package_alone(wheel: Path) -> None:
    assert wheel.name == f"clare-{__version__}-py3-none-any.whl"
    assert wheel.stat().st_size <= MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    paths = [PurePosixPath(name) for name in names]
    assert {path.parts[0] for path in paths} == {"clare", f"clare-{__version__}.dist-info"}
    strange = {"tests", "results", "studies", "scripts", "benchmarks", "docs", "runs", "__pycache__"}
    assert not [path for path in paths if strange & set(path.parts) or path.name.startswith("test_")]
    sources = {f"clare/{path.relative_to(ROOT / 'src' / 'clare')}" for path in packaged_files()}
    assert {name for name in names if name.startswith("clare/")} == sources


def packaged_files() -> list[Path]:
    """Return every file of the package."""
    return [path for path in (ROOT / "src" / "clare").rglob("*") if path.is_file() and "__pycache__" not in path.parts]


@pytest.mark.parametrize("words", [["doctor"], ["--version"], ["presets"]], ids=" ".join)
def test_commands_run(installed: Path, tmp_path: Path, words: list[str]) -> None:
    output = run(installed / "clare", *words, cwd=tmp_path)
    assert {"doctor": "everything is in place", "--version": __version__, "presets": "quickdraw"}[words[0]] in output


def test_clare_is_the_one_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    place = run(installed / "python", "-c", "import clare; print(clare.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent)


def test_a_run_is_made(installed: Path, tmp_path: Path) -> None:
    preset = write_preset(tmp_path)
    run(installed / "clare", "train", preset, "--set", "stream.num_classes=4", "--out", "run", cwd=tmp_path)
    assert '"event": "end"' in (tmp_path / "run" / "record.jsonl").read_text()


def lines_of_python() -> str:
    """Return the README's first lines of Python."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def test_the_lines_of_python_run(installed: Path, tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures" / "january", "cat", "house")
    write_pictures(tmp_path / "pictures" / "february", "fish", "tree")
    Image.fromarray(drawings("fish", seed=1)["fish"][0]).save(tmp_path / "unknown.png")
    assert "fish" in run(installed / "python", "-c", lines_of_python(), cwd=tmp_path)
