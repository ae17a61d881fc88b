"""Every kept result can be repeated by the command it names, and says what differs from its preset as it is now."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from clare.errors import RunError

Script = Callable[[str], ModuleType]
RESULTS = Path(__file__).parents[2] / "results"
PATHS = sorted(path for kind in ("runs", "validation") for path in (RESULTS / kind).glob("*/*.json"))
KEPT = RESULTS / "validation" / "quickdraw" / "clare-learning_rate=0.8-1993.json"


@pytest.fixture(scope="session")
def refreshing(script: Script) -> ModuleType:
    return script("refresh_results")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_command_of_a_result_means_its_settings(refreshing: ModuleType, path: Path) -> None:
    assert refreshing.is_current(refreshing.read_result(path)), (
        "the preset changed since; run scripts/refresh_results.py"
    )


def test_a_result_whose_preset_changed_gets_another_name_and_command(refreshing: ModuleType, tmp_path: Path) -> None:
    result = json.loads(KEPT.read_bytes())
    # As if the preset had had this rate when the run was made.
    result["changes"], result["settings"]["overrides"] = {}, ["stream.evaluate_on=validation"]
    old, taken = tmp_path / "clare-1993.json", tmp_path / KEPT.name
    old.write_text(json.dumps(result))
    shutil.copy(KEPT, taken)
    both = f"clare-1993.json and {KEPT.name} are both called {KEPT.name} today"
    with pytest.raises(RunError, match=re.escape(both)):
        refreshing.refresh([old, taken])
    taken.unlink()
    assert refreshing.refresh([old]) == {old: taken}
    assert not old.exists()
    run = refreshing.read_result(taken)
    assert refreshing.is_current(run)
    assert run.changes == {"learning_rate": "0.8"}
    assert run.result["command"] == (
        "clare train quickdraw --method clare --seed 1993 --set stream.evaluate_on=validation "
        "--set method.learning_rate=0.8"
    )
    assert run.result["final_accuracy"] == result["final_accuracy"]


def test_names_can_be_exchanged(refreshing: ModuleType, tmp_path: Path) -> None:
    fast, own = tmp_path / KEPT.name, tmp_path / "clare-1993.json"
    accuracies = {}
    for source, wrong in ((KEPT, own), (KEPT.with_name(own.name), fast)):
        result = json.loads(source.read_bytes())
        accuracies[source.name] = result["final_accuracy"]
        # As if the preset had had the other rate.
        result["changes"] = {} if wrong is own else {"learning_rate": "0.2"}
        wrong.write_text(json.dumps(result))
    assert refreshing.refresh([fast, own]) == {fast: own, own: fast}
    for path in (fast, own):
        run = refreshing.read_result(path)
        assert refreshing.is_current(run)
        assert run.result["final_accuracy"] == accuracies[path.name]


def test_a_result_that_is_true_is_left_alone(refreshing: ModuleType, tmp_path: Path) -> None:
    copy = Path(shutil.copy(KEPT, tmp_path))
    assert refreshing.refresh([copy]) == {}
    assert copy.read_bytes() == KEPT.read_bytes()
