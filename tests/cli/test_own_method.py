"""A method of one's own, from its file to its model, and the page that shows how to write one."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from run_outcome import Stop, StopAtTask, outcome
from typer.testing import CliRunner, Result

import clare
from clare.cli.main import app
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import SettingsError
from clare.methods import METHODS
from clare.model.folder import load_model
from clare.presets.load import make_experiment

PAGE = Path(__file__).parents[2] / "docs" / "own_method.md"
StartPython = Callable[..., "subprocess.Popen[str]"]


def invoke(*arguments: str | Path) -> Result:
    """Run a command on a wide terminal."""
    return CliRunner().invoke(app, [str(word) for word in arguments], env={"COLUMNS": "200"}, catch_exceptions=False)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the method of the page, as a user gives it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert code.count("\n") <= 32
    path = tmp_path_factory.mktemp("own") / "averaged.py"
    path.write_text(code)
    METHODS.named(f"{path}:Averaged")
    return f"{path}:Averaged"


@pytest.mark.slow
def test_the_method_of_the_page_keeps_every_promise(averaged: str) -> None:
    result = invoke("check-method", averaged)
    assert result.exit_code == 0, result.output
    assert "every promise is kept" in result.output
    assert "broken" not in result.output
    assert result.output.count("kept ") == 12
    assert result.output.count("does not apply") == 1


def test_the_method_of_the_page_learns(averaged: str, tiny_preset: Path, tmp_path: Path) -> None:
    command = ("train", tiny_preset, "--method", averaged, "--set", "method.share=0.3", "--out", tmp_path / "run")
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    assert "averaged, in percent" in result.output
    preset = json.loads((tmp_path / "run" / "preset.json").read_text())
    assert (preset["method"]["name"], preset["method"]["share"]) == (averaged, 0.3)
    assert "averaged, in percent" in invoke("show", tmp_path / "run").output
    invoke("report", tmp_path / "run", "--out", tmp_path / "plots")
    assert f"--method {averaged} --seed" in (tmp_path / "plots" / "report.html").read_text()
    # The share is what the page says: with all of it kept, it is fine-tuning.
    for method, settings in ((averaged, ["method.share=1"]), ("finetune", [])):
        run_experiment(
            make_experiment(str(tiny_preset), method, settings), tmp_path / method.rpartition(":")[2], Silence()
        )
    tensors = [outcome(tmp_path / name)["tensors"] for name in ("Averaged", "finetune")]
    model = next(name for name in tensors[0] if name.startswith("model/"))
    assert tensors[0][model] == tensors[1][model] != outcome(tmp_path / "run")["tensors"].get(model)


def test_a_run_goes_on_and_has_its_folder(
    averaged: str, tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = make_experiment(str(tiny_preset), averaged, [], 3)
    folder = Path("runs") / "tiny" / "averaged-3"
    with pytest.raises(Stop):
        run_experiment(experiment, folder, StopAtTask(2))
    assert f"run folder: {folder}" in invoke("train", tiny_preset, "--method", averaged, "--seed", "3").output
    run_experiment(experiment, Path("straight"), Silence())
    assert outcome(folder) == outcome(Path("straight"))


def test_it_is_compared_and_tuned_beside_the_others(averaged: str, tiny_preset: Path, tmp_path: Path) -> None:
    methods = f"simplecil,{averaged}"
    result = invoke("compare", tiny_preset, "--methods", methods, "--out", tmp_path / "compare")
    assert result.exit_code == 0, result.output
    assert list(json.loads((tmp_path / "compare" / "summary.json").read_text())) == ["simplecil", "averaged"]
    assert (tmp_path / "compare" / "averaged" / "record.jsonl").is_file()
    path = Path(averaged.rpartition(":")[0]).with_name("tuned.py")
    words = "(AdaptedMethod, Tunable):\n    tunable = {'learning_rate': FACTORS, 'share': (0.25, 0.5, 1.0, 2.0)}\n"
    code = Path(averaged.rpartition(":")[0]).read_text().replace('"averaged"', '"tuned"')
    path.write_text(
        "from clare.methods.protocols import FACTORS, Tunable\n" + code.replace("(AdaptedMethod):\n", words)
    )
    averaged = f"{path}:Averaged"
    result = invoke("tune", tiny_preset, "--methods", averaged, "--trials", "2", "--out", tmp_path / "tune")
    assert result.exit_code == 0, result.output
    trials = json.loads((tmp_path / "tune" / "tune.json").read_text())["trials"]
    assert [list(trial["settings"]) for trial in trials] == [["learning_rate", "share"]] * 2
    tuned = tmp_path / "tune" / "tiny-tuned.toml"
    chosen = {key: make_experiment(str(tuned), averaged).method[key] for key in ("learning_rate", "share")}
    assert chosen in [trial["settings"] for trial in trials]
    # The preset serves the other methods too, whether the file is there or not.
    text = tuned.read_text().replace("tuned.py", "gone.py")
    (tmp_path / "gone.toml").write_text(text)
    assert make_experiment(str(tmp_path / "gone.toml"), "simplecil").method_name == "simplecil"


def test_a_model_needs_its_file(tiny_preset: Path, tmp_path: Path, averaged: str, start_python: StartPython) -> None:
    path = tmp_path / "lost.py"
    shutil.copy(averaged.rpartition(":")[0], path)
    path.write_text(path.read_text().replace('"averaged"', '"lost"'))
    METHODS.named(f"{path}:Averaged")
    run_experiment(make_experiment(str(tiny_preset), f"{path}:Averaged"), tmp_path / "run", Silence())
    model = tmp_path / "run" / "model"
    assert json.loads((model / "model.json").read_text())["method"]["name"] == f"{path}:Averaged"
    assert load_model(model)[0].name == "lost"
    assert clare.load(model, device="cpu").classes
    path.unlink()
    given = f"{path}:Averaged"
    code = (
        f"import clare, clare.errors as errors\ntry:\n  clare.load({str(model)!r}, method={given!r})\n"
        "except errors.ModelError as error:\n  print('model')\nexcept errors.SettingsError as error:\n  print(error)"
    )
    output, messages = start_python("-c", code).communicate()
    assert output.strip() == f"there is no file {path}, which holds the method '{given}'; give its path from here", (
        messages
    )


def test_a_classifier_takes_it_too(averaged: str) -> None:
    method = clare.Classifier(method=averaged, settings={"share": 0.2}, device="cpu").parts.method
    assert (method.name, method.settings.share) == ("averaged", 0.2)  # type: ignore[attr-defined]
    assert METHODS.name_of(type(method)) == averaged


def test_its_settings_are_shown(averaged: str) -> None:
    words = " ".join(invoke("methods", averaged).output.split())
    assert "keeps a running mean of the adapters that the tasks train" in words
    assert "method.share 0.5 > 0, ≤ 1 Share of a task's change to the adapter that is kept." in words
    assert "averaged" not in list(METHODS)


BROKEN = """
from pydantic import Field

from clare.methods.simplecil import SimpleCil, SimpleCilSettings


class BrokenSettings(SimpleCilSettings):
    rate: float = Field(1.0, gt=0, le=1)


class Broken(SimpleCil):
    name = "broken"
    summary = "answers well and forgets to explain its setting"
    settings_type = BrokenSettings
"""


@pytest.mark.slow
def test_a_broken_promise_is_told_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    result = invoke("check-method", f"{tmp_path}/broken.py:Broken")
    assert result.exit_code == 1
    lines = [line for line in result.output.splitlines() if line.startswith("broken")]
    (line,) = lines
    words = "every setting is typed explained and bounded: the setting 'rate' has no description"
    assert line.split(maxsplit=1)[1] == words
    assert "1 of 13 promises is broken" in result.output


def test_a_method_that_cannot_be_found_is_not_checked() -> None:
    with pytest.raises(SettingsError, match=r"there is no file nowhere\.py"):
        invoke("check-method", "nowhere.py:Mine")
