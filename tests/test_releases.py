"""What every release saved is read, goes on and answers today as it did then."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from own_worlds import drawings

import clare
from clare.classifier.classifier import load
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.presets.load import make_experiment
from clare.registry import load_file
from clare.report.record import read_run
from clare.report.tables import task_sheet, to_rich

SAVED = Path(__file__).parent / "releases"
ask = load_file(SAVED / "save.py", "which asked the models of the releases").answers


@pytest.fixture(params=sorted(path.name for path in SAVED.iterdir() if (path / "answers.json").exists()))
def answers(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Go into a copy of what a release saved, and return what its model answered then."""
    shutil.copytree(SAVED / request.param, tmp_path / "saved")
    # What was saved names its backbone by a relative path, so that it can be moved.
    monkeypatch.chdir(tmp_path / "saved")
    found: dict[str, Any] = json.loads(Path("answers.json").read_text())
    return found


def nearly(expected: list[dict[str, float]]) -> list[Any]:
    """Return answers as something that equals all that differ by rounding alone."""
    return [pytest.approx(answer, abs=1e-5) for answer in expected]


def test_this_release_has_saved_its_folders() -> None:
    assert (SAVED / clare.__version__ / "answers.json").is_file(), "run PYTHONPATH=tests python tests/releases/save.py"


def test_the_model_answers_learns_and_goes_back(answers: dict[str, Any]) -> None:
    model = load("model", device="cpu")
    assert ask(model) == nearly(answers["after"])
    model.learn(drawings("sun", "axe"))
    again = load("model", device="cpu")
    assert [info.name for info in again.classes] == ["cat", "dog", "bus", "van", "sun", "axe"]
    assert ask(again) == nearly(ask(model))
    again.undo()
    assert ask(load("model", device="cpu")) == nearly(answers["after"])
    # This change was made by the release itself.
    again.undo()
    assert ask(load("model", device="cpu")) == nearly(answers["before"])


def test_the_likeliest_class_is_what_is_predicted(answers: dict[str, Any]) -> None:
    model = clare.load("model", device="cpu")
    likeliest = [max(answer, key=answer.__getitem__) for answer in answers["after"]]
    asked = [image for images in drawings("cat", "dog", "bus", "van", number=2, seed=5).values() for image in images]
    assert model.predict(asked).tolist() == likeliest


@pytest.mark.usefixtures("answers")
def test_the_run_is_read_and_goes_on() -> None:
    before = read_run(Path("run"))
    assert (len(before.tasks), before.finished) == (2, False)
    assert to_rich(task_sheet(before)).row_count == 2
    run_experiment(make_experiment("tiny.toml", "clare"), Path("run"), Silence())
    after = read_run(Path("run"))
    assert (len(after.tasks), after.finished) == (3, True)
    assert after.tasks[:2] == before.tasks
    assert len(clare.load("run/model", device="cpu").classes) == 6
