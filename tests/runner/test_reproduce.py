"""`clare reproduce`: all nine experiments at a tiny size, killed and resumed, with failing rows, and careless calls."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from clare.cli.main import app, main
from clare.engine.context import Listener
from clare.engine.run import run_experiment
from clare.errors import DivergedError, SettingsError
from clare.paper.paper import STUDIES
from clare.presets.schema import Experiment

StartPython = Callable[..., "subprocess.Popen[str]"]


def invoke(*arguments: str | Path) -> Result:
    """Run `clare reproduce` on a wide terminal."""
    words = ["reproduce", *(str(word) for word in arguments)]
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"}, catch_exceptions=False)


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    """Read a table's CSV file by its rows, without times."""
    with path.open() as file:
        return {line["row"]: {**line, "seconds": ""} for line in csv.DictReader(file)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which all experiments of this file share their runs."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.parametrize("name", STUDIES)
def test_every_experiment_runs_at_a_tiny_size(tiny_preset: Path, folder: Path, name: str) -> None:
    seeds = ["--seeds", "1993,1994"] if name == "table6" else []
    result = invoke(name, "--preset", tiny_preset, "--out", folder, *seeds)
    assert result.exit_code == 0, result.output
    found = rows_of(folder / f"{name}.csv")
    assert list(found) == [row.label for row in STUDIES[name].rows]
    for row in found.values():
        assert 0 <= float(row["final"]) <= 100
        assert row["failed"] == row["final_to_paper"] == ""
    page = (folder / f"{name}.md").read_text()
    assert f"# {name}: {STUDIES[name].title}" in page
    assert "other data than the paper's; another backbone" in page
    if name != "figure1":
        assert "4.41 h" in page if name == "efficiency" else "other data than ours" in page
    values = json.loads((folder / f"{name}.json").read_text())
    for cell in values["cells"]:
        for run in cell["runs"]:
            assert (folder / run["folder"] / "record.jsonl").is_file()
            assert run["environment"]["torch"]
    again = invoke(name, "--preset", tiny_preset, "--out", folder, *seeds)
    assert "runs are done" in again.output
    assert rows_of(folder / f"{name}.csv") == found


def test_the_share_with_the_best_validation_accuracy_is_run(tiny_preset: Path, folder: Path) -> None:
    assert invoke("table3", "--preset", tiny_preset, "--out", folder).exit_code == 0
    cells = json.loads((folder / "table3.json").read_text())["cells"]
    choice = cells[1]["choice"]
    best = max(choice["scores"].items(), key=lambda item: (item[1]["final"], item[1]["average"]))[0]
    assert choice["chosen"] == cells[1]["chosen"] == best
    (run,) = cells[1]["runs"]
    assert run["settings"]["method"]["constant_share"] == float(best.partition("=")[2])
    assert run["settings"]["stream"]["evaluate_on"] == "test"
    assert f"runs with {best}, chosen by final accuracy on validation images" in (folder / "table3.md").read_text()


def test_figures_and_latencies_are_written(tiny_preset: Path, folder: Path) -> None:
    assert invoke("figure1", "--preset", tiny_preset, "--out", folder).exit_code == 0
    assert (folder / "figure1.png").is_file()
    assert (folder / "figure1.svg").is_file()
    movement = json.loads((folder / "figure1.json").read_text())["movement"][str(tiny_preset)]
    assert len(movement["edges"]) == len(movement["counts"]) + 1
    assert "moved by 0.05 or more" in (folder / "figure1.md").read_text()
    assert invoke("efficiency", "--preset", tiny_preset, "--out", folder).exit_code == 0
    (latencies,) = json.loads((folder / "efficiency.json").read_text())["latency"].values()
    labels = ["bare backbone", "backbone + plain adapter", "CLARE", "SD-LoRA", "EASE"]
    assert [each["label"] for each in latencies] == labels * 2
    assert all(0 < each["low"] <= each["median"] <= each["high"] for each in latencies)


def test_a_plan_runs_nothing(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a run was started")

    monkeypatch.setattr("clare.runner.jobs.run_experiment", refuse)
    result = invoke("table3", "--preset", tiny_preset, "--out", tmp_path / "out", "--plan")
    assert result.exit_code == 0, result.output
    assert "w/o capacity-aware (to choose)" in result.output
    assert "17 of 17 runs are left, about " in result.output
    assert "Times are measured: " in result.output
    assert not (tmp_path / "out").exists()


def test_a_plan_needs_no_data(tiny_preset: Path, tmp_path: Path) -> None:
    words = [
        "--set",
        "data.dataset=imagenet-r",
        "--set",
        f"data.root={tmp_path}",
        "--set",
        "backbone.weights=none.safetensors",
    ]
    result = invoke("table7", "--preset", tiny_preset, "--out", tmp_path / "out", "--plan", *words)
    assert result.exit_code == 0, result.output
    assert "4 of 4 runs are left, about " in result.output
    assert (
        "the data are not here; known are 200 classes with about 24,000 training and 6,000 test images" in result.output
    )


def test_a_failing_row_leaves_the_others(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(experiment: Experiment, place: Path, listener: Listener) -> None:
        if experiment.method["mask"] == "random":
            raise DivergedError("the loss became inf; lower it")
        run_experiment(experiment, place, listener)

    monkeypatch.setattr("clare.runner.jobs.run_experiment", fail)
    result = invoke("table5", "--preset", tiny_preset, "--out", tmp_path, "--set", "method.epochs=1")
    assert result.exit_code == 1
    assert "error: tiny, random mask failed: the loss became inf; lower it" in result.output
    rows = rows_of(tmp_path / "table5.csv")
    assert rows["random mask"]["final"] == rows["random mask"]["final_to_reference"] == ""
    assert rows["random mask"]["failed"] == "the loss became inf; lower it"
    assert rows["no mask"]["final"] != ""
    assert "| random mask | failed | - | - | - |" in (tmp_path / "table5.md").read_text()


def test_a_row_without_a_choice_fails_alone(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(experiment: Experiment, place: Path, listener: Listener) -> None:
        if experiment.stream.evaluate_on == "validation":
            raise DivergedError("the loss became inf; lower it")
        run_experiment(experiment, place, listener)

    monkeypatch.setattr("clare.runner.jobs.run_experiment", fail)
    result = invoke("table3", "--preset", tiny_preset, "--out", tmp_path)
    assert result.exit_code == 1
    assert "w/o capacity-aware failed: none of its choices could be run on validation images" in result.output
    assert rows_of(tmp_path / "table3.csv")["w/o two-stage"]["final"] != ""


def test_two_presets_are_two_tables(tiny_preset: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(f'extends = "{tiny_preset}"\nseed = 7\n[stream]\nincrement = 3\n')
    result = invoke("table7", "--preset", f"{tiny_preset},{other}", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    cells = json.loads((tmp_path / "out" / "table7.json").read_text())["cells"]
    assert [(cell["runs"][0]["preset"], cell["row"]) for cell in cells][3:5] == [
        ("tiny", "d = 128"),
        ("other", "d = 16"),
    ]
    page = (tmp_path / "out" / "table7.md").read_text()
    assert "**tiny**" in page
    assert "**other**" in page
    assert "seeds 1993, 7." in page


@pytest.mark.slow
def test_runs_side_by_side_find_the_same(tiny_preset: Path, folder: Path, tmp_path: Path) -> None:
    result = invoke("table7", "--preset", tiny_preset, "--out", tmp_path, "--jobs", "2")
    assert result.exit_code == 0, result.output
    assert "2 at a time take at best" in result.output
    assert invoke("table7", "--preset", tiny_preset, "--out", folder).exit_code == 0
    assert rows_of(tmp_path / "table7.csv") == rows_of(folder / "table7.csv")


@pytest.mark.slow
def test_a_killed_experiment_goes_on(
    tiny_preset: Path, folder: Path, tmp_path: Path, start_python: StartPython
) -> None:
    out = tmp_path / "out"
    words = ("-m", "clare", "reproduce", "table3", "--preset", tiny_preset, "--out", out)
    process = start_python(*words)
    while len(list(out.glob("runs/tiny/*/checkpoint/task-*"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "table3.md").exists()
    again = start_python(*words)
    output, messages = again.communicate()
    assert again.returncode == 0, messages
    assert f"table: {out / 'table3.md'}" in output
    assert invoke("table3", "--preset", tiny_preset, "--out", folder).exit_code == 0
    assert rows_of(out / "table3.csv") == rows_of(folder / "table3.csv")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("tabel1", "there is no experiment 'tabel1' (did you mean 'table1'?); known: table1, "),
        ("table1 --preset quickdrw", "there is no preset 'quickdrw' (did you mean 'quickdraw'?)"),
        ("table1 --preset quickdraw --backbone nothing", "there is no backbone 'nothing'"),
        ("table6 --preset quickdraw --seeds 5", "table6 measures how results vary over seeds, and --seeds got 5 alone"),
        ("table1 --preset quickdraw --seeds 1,x", "--seeds got 'x', which is no whole number"),
        ("efficiency --preset quickdraw --jobs 2", "efficiency compares times, which runs side by side would spoil"),
        ("table1 --preset quickdraw --set method.epoks=1", "there is no setting 'method.epoks'"),
        ("table1 --preset quickdraw --set stream.evaluate_on=validation", "choices are made on validation images"),
        ("table1 --preset ,", "--preset got ',', which names no preset; leave it out for the paper's own"),
        (
            "table6 --preset quickdraw --set seed=5",
            "--set seed cannot be used here: every run has one of the seeds 1993,",
        ),
        ("figure1 --preset quickdraw --set stream.num_classes=300", "asks for 300 classes and there are 200"),
        ("table3", "the data of imagenet-r-10x20 and omnibenchmark1k-100x10 cannot be used: there is no folder"),
        ("table7", "`clare data imagenet-r-50x4` says where they come from"),
        ("table7", "--preset quickdraw-20x10 runs the experiment on drawings that come with the package"),
    ],
)
def test_careless_calls_end_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["clare", "reproduce", *arguments.split()])
    with pytest.raises(SystemExit) as leaving:
        main()
    printed = capsys.readouterr()
    assert leaving.value.code == 2
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith("error: ")
    assert sentence in printed.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_for_a_folder_is_told_before_anything_runs(tiny_preset: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SettingsError, match=r"--out got .*notes\.txt, which is a file"):
        invoke("table7", "--preset", tiny_preset, "--out", tmp_path / "notes.txt")


def test_a_preset_that_evaluates_on_validation_images_is_refused(tiny_preset: Path, tmp_path: Path) -> None:
    (tmp_path / "held.toml").write_text(f'extends = "{tiny_preset}"\n[stream]\nevaluate_on = "validation"\n')
    with pytest.raises(SettingsError, match=r"`stream\.evaluate_on` is validation for held: figures are measured"):
        invoke("table7", "--preset", tmp_path / "held.toml", "--out", tmp_path / "out")


def test_no_process_is_refused(tmp_path: Path) -> None:
    result = invoke("table1", "--preset", "quickdraw", "--jobs", "0", "--out", tmp_path)
    assert result.exit_code == 2
    assert "--jobs" in result.output


def test_the_papers_numbers_are_subtracted_only_from_its_own_setting(
    tiny_preset: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream_of(*_: Any, **__: Any) -> str:
        return "imagenet-r-10x20"

    monkeypatch.setattr("clare.paper.results.stream_in_paper", stream_of)
    assert invoke("table4", "--preset", tiny_preset, "--out", folder).exit_code == 0
    row = rows_of(folder / "table4.csv")["sparsity 99 %"]
    assert (row["paper_final"], row["paper_final_to_reference"], row["final_to_paper"]) == ("73.14", "-6.59", "")
    monkeypatch.setattr("clare.paper.results.has_paper_backbone", lambda *_: True)
    assert invoke("table4", "--preset", tiny_preset, "--out", folder).exit_code == 0
    row = rows_of(folder / "table4.csv")["sparsity 99 %"]
    assert float(row["final_to_paper"]) == pytest.approx(float(row["final"]) - 73.14, abs=1e-3)
