"""The command line from help to report."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from run_outcome import outcome
from typer.main import get_command
from typer.testing import CliRunner, Result

from clare.cli.listing import families, index_method
from clare.cli.main import app
from clare.methods import METHODS
from clare.presets.load import make_experiment, preset_names, read_preset
from clare.version import __version__

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def invoke(*arguments: str | Path, columns: int = 240) -> Result:
    """Run a command on a wide terminal and expect it to succeed."""
    words, env = [str(word) for word in arguments], {"COLUMNS": str(columns)}
    result = CliRunner().invoke(app, words, env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_the_version_is_said() -> None:
    assert invoke("--version").output == f"clare {__version__}\n"


def test_every_command_is_listed() -> None:
    output = invoke("--help").output
    commands = {"train", "compare", "tune", "presets", "methods", "check-method", "show", "report", "doctor"}
    assert commands <= set(COMMANDS)
    assert all(name in output for name in COMMANDS)


def test_commands_are_grouped() -> None:
    groups: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        groups.setdefault(command.rich_help_panel, []).append(name)
    assert list(groups) == ["Your own pictures", "Experiments", "The paper", "This machine"]
    assert {"learn", "predict", "serve", "export"} <= set(groups["Your own pictures"])
    assert {"train", "compare", "sweep", "methods"} <= set(groups["Experiments"])
    assert groups["The paper"] == ["reproduce"]
    assert set(groups["This machine"]) == {"data", "doctor", "pretrain"}
    output = invoke("--help").output
    places = [output.index(group) for group in groups]
    assert places == sorted(places)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_explains_every_argument(name: str) -> None:
    words = " ".join(invoke(name, "--help").output.replace("│", " ").split())
    assert COMMANDS[name].help.split("\n")[0][:40] in words
    for parameter in COMMANDS[name].params:
        if getattr(parameter, "hidden", False):
            continue
        shown = parameter.opts[0] if parameter.param_type_name == "option" else parameter.name
        assert shown in words.lower(), parameter.name
        assert parameter.help, parameter.name
        assert parameter.help.split("`")[0][:30] in words, parameter.name


def test_presets_are_listed_and_shown() -> None:
    output = invoke("presets").output
    for name in preset_names():
        assert name in output
        assert read_preset(name)["description"] in output
    assert json.loads(invoke("presets", "quickdraw").output) == make_experiment("quickdraw").model_dump(mode="json")


def test_methods_are_listed_and_shown() -> None:
    output = invoke("methods").output
    for name in METHODS:
        assert name in output
        assert METHODS.get(name).summary in output


def test_methods_are_listed_by_family() -> None:
    lines = [line.strip() for line in invoke("methods").output.splitlines()]
    found = families()
    headings = [line for line in lines if line in found]
    assert headings == list(found)
    assert headings[:2] == ["references", "adapters"]
    for family, kinds in found.items():
        start = lines.index(family) + 1
        assert [line.split()[0] for line in lines[start : start + len(kinds)]] == [kind["name"] for kind in kinds]
    assert "simplecil" in [kind["name"] for kind in found["references"]]
    assert all(kind["summary"].endswith("(keeps 2000 pictures)") for kind in found["replay"])
    assert "clare" in [kind["name"] for kind in found["adapters"]]


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_shows_every_setting(name: str) -> None:
    method = METHODS.get(name)
    words = " ".join(invoke("methods", name, columns=600).output.split())
    assert f"{name}: {method.summary}" in words
    for setting in index_method(method)["settings"]:
        assert " ".join(setting[part] for part in ("key", "default", "allowed", "description")) in words


def test_a_method_shows_bounds_and_choices() -> None:
    settings = {setting["key"]: setting["allowed"] for setting in index_method(METHODS.get("clare"))["settings"]}
    assert settings["method.sparsity"] == "≥ 0, < 1"
    assert settings["method.learning_rate"] == "> 0, ≤ 100"
    assert settings["method.mask"] == "learnt | random | none"
    assert settings["method.two_stage"] == "bool"
    kinds = "trained | prototype | aligned | discriminant | quadratic | gaussian | ridge | realigned"
    assert settings["method.head.kind"] == kinds


def test_a_run_is_trained_shown_and_reported(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = invoke("train", tiny_preset, "--method", "finetune", "--seed", "5", "--set", "method.epochs=1").output
    run = Path("runs") / "tiny" / "finetune-5"
    assert f"run folder: {run}" in output
    preset = json.loads((run / "preset.json").read_text())
    assert (preset["seed"], preset["method"]["epochs"], preset["overrides"]) == (5, 1, ["method.epochs=1"])
    shown = invoke("show", run).output
    tables = [line for line in output.splitlines() if line.strip() and "run folder" not in line]
    assert [line for line in tables if not line.startswith("finetune: task ")] == [
        line for line in shown.splitlines() if line.strip()
    ]
    assert next(line for line in tables if line.startswith("finetune: task ")).startswith("finetune: task 1 of ")
    assert "finetune, in percent" in shown
    latex = invoke("show", run, "--latex").output
    assert latex.startswith("% \\usepackage{booktabs}\n")
    assert latex.splitlines()[-1] == "\\end{tabular}"
    assert "finetune & 1 & $" in latex
    output = invoke("report", run, "--out", "pictures").output
    assert "report: pictures/report.html" in output
    check_report(Path("pictures"), ["finetune"])


def check_report(folder: Path, methods: list[str]) -> None:
    """Assert that a report has its page, its pictures and its figures."""
    page = (folder / "report.html").read_text()
    assert all(method in page for method in methods)
    pictures = list((folder / "plots").glob("*.png"))
    assert pictures
    for picture in pictures:
        with Image.open(picture) as image:
            image.load()
            assert min(image.size) > 100
    summary = json.loads((folder / "summary.json").read_text())
    assert list(summary) == methods
    for figures in summary.values():
        for name in ("average_accuracy", "final_accuracy"):
            assert 0 < figures[name] <= 1
        assert 0 <= figures["forgetting"] <= 1


def test_methods_are_compared(tiny_preset: Path, tmp_path: Path) -> None:
    methods = ["linear", "clare", "simplecil"]
    output = invoke("compare", tiny_preset, "--methods", ", ".join([*methods, methods[0]]), "--out", tmp_path).output
    check_report(tmp_path, methods)
    assert f"report: {tmp_path / 'report.html'}" in output
    for method in methods:
        assert f"{method}, in percent" in output
        assert json.loads((tmp_path / method / "preset.json").read_text())["method"]["name"] == method
    assert "Comparison" in output
    assert "reference" in output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "difference_to_clare" in summary["linear"]
    before = {method: outcome(tmp_path / method) for method in methods}
    invoke("compare", tiny_preset, "--methods", ",".join(methods), "--out", tmp_path)
    assert {method: outcome(tmp_path / method) for method in methods} == before
    shown = invoke("show", tmp_path).output
    assert all(f"{method}, in percent" in shown for method in methods)


def test_an_interrupted_command_says_how_to_go_on(
    tiny_preset: Path, tmp_path: Path, start_python: Callable[..., "subprocess.Popen[str]"]
) -> None:
    # A shell may start us with this signal ignored, and a child would inherit that.
    code = (
        "import signal, clare.cli.main; signal.signal(signal.SIGINT, signal.default_int_handler); clare.cli.main.main()"
    )
    command = ("train", tiny_preset, "--method", "clare", "--set", "method.epochs=10000", "--out", tmp_path / "run")
    process = start_python("-c", code, *command)
    while not (tmp_path / "run" / "checkpoint" / "position.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate()
    assert process.returncode == 130
    assert messages.strip() == "interrupted; run the same command again to go on"
