"""Models and runs under every head, saved when all settings of heads were one flat table, answer and go on as then."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from own_worlds import drawings, odds

from clare.classifier.classifier import load
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.presets.load import make_experiment
from clare.report.record import read_run

SAVED = Path(__file__).parent / "releases" / "0.1.0-heads"
EXPECTED = json.loads((SAVED / "expected.json").read_text())
# How the runs were asked for then: method and --set flags.
ASKED: dict[str, tuple[str, list[str]]] = {
    "clare-aligned": ("clare", ["method.head.kind=aligned"]),
    "clare-plus-quadratic": (
        "clare-plus",
        [
            "method.head.kind=quadratic",
            "method.features.blocks=2",
            "method.features.views=2",
            "method.head.num_directions=2",
        ],
    ),
    "ranpac": ("ranpac", []),
    "ease": ("ease", []),
    "l2p": ("l2p", []),
    "inflora": ("inflora", []),
    "finetune-linear": ("finetune", ["method.head.form=linear", "method.head.kind=discriminant"]),
}


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go into a copy of what was saved, which names its backbone by a relative path."""
    shutil.copytree(SAVED, tmp_path / "saved")
    monkeypatch.chdir(tmp_path / "saved")


def answers(model: Any) -> list[dict[str, float]]:
    """Return the probability of every class for two pictures of each."""
    asked = [image for images in drawings("cat", "dog", "bus", "van", number=2, seed=5).values() for image in images]
    return [odds(answer) for answer in model.guess(asked, top=9)]


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_model_answers_as_it_did_and_learns_on(name: str) -> None:
    model = load(f"models/{name}", device="cpu")
    assert answers(model) == [pytest.approx(answer, abs=1e-5) for answer in EXPECTED["models"][name]]
    model.learn(drawings("sun", "axe"))
    again = load(f"models/{name}", device="cpu")
    assert answers(again) == answers(model)
    again.undo()
    found = answers(load(f"models/{name}", device="cpu"))
    assert found == [pytest.approx(answer, abs=1e-5) for answer in EXPECTED["models"][name]]


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("name", ASKED)
def test_a_run_goes_on_to_the_same_end(name: str) -> None:
    folder, (method, settings) = Path("runs") / name, ASKED[name]
    before = read_run(folder)
    assert (len(before.tasks), before.finished) == (2, False)
    run_experiment(make_experiment("tiny.toml", method, settings), folder, Silence())
    after = read_run(folder)
    assert after.finished
    assert [task.seen for task in after.tasks] == pytest.approx(EXPECTED["runs"][name], abs=0.1)
    assert after.tasks[:2] == before.tasks
