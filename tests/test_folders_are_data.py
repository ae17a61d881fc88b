"""No folder and no preset makes a file run; a person who names the file, and the right one, does."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from own_worlds import drawings, taught_model, write_pictures
from run_outcome import Stop, StopAtTask

import clare
from clare.cli.main import main
from clare.engine.run import run_experiment
from clare.errors import ModelError, SettingsError
from clare.methods import METHODS
from clare.model.folder import read_manifest
from clare.presets.load import make_experiment
from clare.presets.schema import completed
from clare.registry import load_file
from clare.runner import ray_jobs
from clare.sealed import seal

EVIL = "evil.py:Evil"
POISON = """
from pathlib import Path

from clare.methods.linear import Linear

Path(__file__).with_suffix(".ran").touch()


class Evil(Linear):
    name = "{name}"
    summary = "leaves a file where it ran"
"""
REFUSAL = (
    r"{} asks for the method evil\.py:Evil, a file, and no folder or preset makes a file run; if you trust that file, "
    r"name it: --method evil\.py:Evil, or in Python method='evil\.py:Evil'"
)
ON_MODELS = (
    "predict model pictures/cat/00.png",
    "inspect model",
    "evaluate model pictures",
    "undo model",
    "rename model cat tiger",
    "remove model cat",
    "learn model more --quick",
    "export model --out exported",
    "serve model --port 0",
)
ON_PRESETS = (
    "presets evil.toml",
    "train evil.toml --out new",
    "data evil.toml",
    "sweep evil.toml --set stream.num_classes=4,6 --out new",
)

Run = Callable[[str], tuple[int, str]]
on_models = pytest.mark.parametrize("command", ON_MODELS, ids=lambda command: command.split()[0])
on_presets = pytest.mark.parametrize("command", ON_PRESETS, ids=lambda command: command.split()[0])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_preset: Path) -> Path:
    """Return a folder with a method in a file, a model and a stopped run of it, and a preset that asks for it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "evil.py").write_text(POISON.format(name="evil"))
    (folder / "other.py").write_text(POISON.format(name="other"))
    (folder / "evil.toml").write_text(f'extends = "{tiny_preset}"\ndefault_method = "{EVIL}"\n')
    with chdir(folder), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(METHODS, "_own", {})
        METHODS.named(EVIL)
        taught_model(folder, EVIL)
        with suppress(Stop):
            run_experiment(make_experiment(str(tiny_preset), EVIL), folder / "run", StopAtTask(2))
    (folder / "evil.ran").unlink()
    write_pictures(folder / "pictures", "cat", "dog", number=2, seed=7)
    write_pictures(folder / "more", "yak", "gnu", number=2, seed=7)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a copy of that folder, as somebody who has unpacked it and named nothing."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(METHODS, "_own", {})
    return tmp_path / "here"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return run(command): the exit code of `clare COMMAND`, and all that it says."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)

    def typed(command: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["clare", *command.split()])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out + said.err

    return typed


def ran(folder: Path) -> list[str]:
    """Return which files have run."""
    return sorted(path.stem for path in folder.glob("*.ran"))


def model_bytes(folder: Path) -> dict[str, bytes]:
    """Return the files of the model."""
    return {path.name: path.read_bytes() for path in (folder / "model").iterdir()}


@on_models
def test_a_model_folder_makes_no_file_run(here: Path, run: Run, command: str) -> None:
    before = model_bytes(here)
    code, said = run(command)
    assert (code, ran(here)) == (2, []), said
    assert re.search("error: " + REFUSAL.format("model"), said)
    assert model_bytes(here) == before


@on_models
def test_a_file_that_is_named_runs(here: Path, run: Run, command: str) -> None:
    code, said = run(f"{command} --method {EVIL}")
    assert (code, ran(here)) == (0, ["evil"]), said
    assert read_manifest(here / "model").state["method"]["name"] == EVIL


def test_a_file_may_be_named_by_another_path(here: Path, run: Run) -> None:
    code, said = run(f"rename model cat tiger --method {here / EVIL}")
    assert (code, ran(here)) == (0, ["evil"]), said
    assert read_manifest(here / "model").state["method"]["name"] == EVIL


@on_models
def test_another_file_than_the_folders_own_is_refused(here: Path, run: Run, command: str) -> None:
    for name in ("other.py:Evil", "evil.py:Other", "simplecil"):
        code, said = run(f"{command} --method {name}")
        assert (code, ran(here)) == (2, []), said
        sentence = rf"model was made by the method evil\.py:Evil, and {name} was named; name it: --method evil\.py:Evil"
        assert re.search(sentence, said), said


@on_presets
def test_a_preset_makes_no_file_run(here: Path, run: Run, command: str) -> None:
    code, said = run(command)
    # What a preset needs of data and weights does not depend on its method, so `data` need not know it.
    assert (code, ran(here)) == (0 if command.startswith("data") else 2, []), said
    assert command.startswith("data") or re.search("error: " + REFUSAL.format(r"the preset 'evil\.toml'"), said)
    assert not (here / "new").exists()
    code, said = run(f"{command} --method {EVIL}")
    assert (code, ran(here)) == (0, ["evil"]), said


def test_a_run_folder_makes_no_file_run(here: Path, run: Run, tiny_preset: Path) -> None:
    (here / "root").mkdir()
    shutil.copytree(here / "run", here / "root" / "simplecil")
    commands = (
        f"train {tiny_preset} --method simplecil --out run",
        f"compare {tiny_preset} --methods simplecil --out root",
    )
    for command in commands:
        code, said = run(command)
        assert (code, ran(here)) == (2, []), said
        assert "holds a run of another preset: method.name is evil.py:Evil there and simplecil here" in said
        assert f"to go on with that run, if you trust its file, name it: --method {EVIL}" in said


def test_a_run_whose_file_is_named_goes_on(here: Path, run: Run, tiny_preset: Path) -> None:
    (here / "root").mkdir()
    shutil.copytree(here / "run", here / "root" / "evil")
    for command in (f"train {tiny_preset} --out run --method", f"compare {tiny_preset} --out root --methods"):
        code, said = run(f"{command} {EVIL}")
        assert (code, ran(here)) == (0, ["evil"]), said
    assert json.loads((here / "run" / "checkpoint" / "position.json").read_text())["ended"]


def test_tables_and_reports_need_no_file(here: Path, run: Run) -> None:
    for command in ("show run", "report run --out page"):
        code, said = run(command)
        assert (code, ran(here)) == (0, []), said
    assert (here / "page" / "report.html").is_file()


CALLS: dict[str, Callable[..., Any]] = {
    "load": lambda **named: clare.load("model", device="cpu", **named),
    "open": lambda **named: clare.Classifier("model", device="cpu", **named),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_in_python_a_folder_makes_no_file_run(here: Path, call: Callable[..., Any]) -> None:
    with pytest.raises(SettingsError, match=REFUSAL.format("model")):
        call()
    with pytest.raises(ModelError, match=r"and other\.py:Evil was named"):
        call(method="other.py:Evil")
    assert not ran(here)
    assert call(method=EVIL).parts.method.name == "evil"
    assert ran(here) == ["evil"]
    # What a person has named in this process is known.
    assert CALLS["load"]().parts.method.name == "evil"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_in_python_a_class_can_be_given(here: Path, call: Callable[..., Any]) -> None:
    evil, other = (load_file(here / f"{name}.py", "which a test needs").Evil for name in ("evil", "other"))
    with pytest.raises(ModelError, match=r"was made by the method evil\.py:Evil, and the class Evil was named"):
        call(method=other)
    assert type(call(method=evil).parts.method) is evil
    assert read_manifest(here / "model").state["method"]["name"] == EVIL


def test_a_model_made_with_a_class_is_found_again_by_its_file(here: Path, run: Run) -> None:
    kind = load_file(here / "evil.py", "which a test needs").Evil
    clare.Classifier("new", method=kind, device="cpu").learn(drawings("yak", "gnu"))
    assert read_manifest(here / "new").state["method"]["name"] == EVIL
    METHODS._own.clear()
    code, said = run(f"inspect new --method {EVIL}")
    assert code == 0, said


def test_a_class_of_a_notebook_is_known_by_its_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []
    for _ in range(2):
        namespace: dict[str, Any] = {"__name__": "notebook", "__file__": str(here / "cell.py")}
        exec(POISON.format(name="noted"), namespace)
        kinds.append(namespace["Evil"])
    clare.Classifier(method=kinds[0], device="cpu").save("noted")
    assert read_manifest(Path("noted")).state["method"]["name"] == "noted"
    # A cell that is run again defines its class again.
    assert type(clare.load("noted", method=kinds[1], device="cpu").parts.method) is kinds[1]
    monkeypatch.setattr(METHODS, "_own", {})
    with pytest.raises(SettingsError, match="there is no method 'noted'"):
        clare.load("noted", device="cpu")


def test_a_model_of_the_package_may_be_named_and_no_other(here: Path, run: Run) -> None:
    clare.Classifier("plain", method="simplecil", device="cpu").learn(drawings("yak", "gnu"))
    assert run("inspect plain --method simplecil")[0] == 0
    code, said = run("inspect plain --method evil.py:Evil")
    assert (code, ran(here)) == (2, [])
    assert "plain was made by the method simplecil, and evil.py:Evil was named; leave it out, or" in said


def test_names_that_were_read_run_nothing_wherever_they_are_looked_up(here: Path, tiny_preset: Path) -> None:
    preset = json.loads((here / "run" / "preset.json").read_text())
    assert completed(preset) == preset
    with pytest.raises(SettingsError, match=REFUSAL.format("what was read")):
        make_experiment(str(tiny_preset), EVIL)
    assert not ran(here)


def test_a_run_through_ray_has_the_file_that_its_command_names(here: Path, tiny_preset: Path) -> None:
    METHODS.named(EVIL)
    experiment = make_experiment(str(tiny_preset), EVIL)
    METHODS._own.clear()
    marker = here / "marker"
    marker.touch()
    assert ray_jobs.run_task(experiment.model_dump_json(), str(here / "new"), os.getcwd(), str(marker)) is None
    assert (here / "new" / "model").is_dir()


@pytest.mark.parametrize("name", ["a\0b.py:X", "\ud800.py:X", "\x1b[2J.py:X", "evil.py", "evil.py:"])
def test_odd_names_are_shown_and_run_nothing(here: Path, run: Run, name: str) -> None:
    values = json.loads((here / "model" / "model.json").read_text())
    values["method"]["name"] = name
    (here / "model" / "model.json").write_text(json.dumps(seal(values)))
    code, said = run("inspect model")
    assert (code, ran(here)) == (2, [])
    assert "no folder or preset makes a file run" in said or "is damaged: `method` cannot hold" in said
    assert "\x1b[2J" not in said


@pytest.mark.parametrize("command", ["compare", "sweep", "tune --trials 1"])
def test_a_file_may_be_named_after_other_methods(here: Path, run: Run, tiny_preset: Path, command: str) -> None:
    setting = "stream.num_classes=4"
    code, said = run(f"{command} {tiny_preset} --methods linear,{EVIL} --set {setting} --out new")
    assert (code, ran(here)) == (0, ["evil"]), said
