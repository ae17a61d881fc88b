"""Tuning: equally many trials, on validation images alone, gone on with where it stopped."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from clare.cli.main import app
from clare.data.stream import StreamSettings
from clare.engine.context import Listener
from clare.engine.run import run_experiment
from clare.errors import SettingsError
from clare.methods.protocols import FACTORS
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.runner.tune import (
    Grid,
    Point,
    Score,
    edge_of,
    make_grid,
    next_trials,
    num_classes_of,
    round_sizes,
    tuned_preset,
    validation_overrides,
    values_of,
)


def invoke(*arguments: str | Path) -> Result:
    """Run a command on a wide terminal."""
    return CliRunner().invoke(app, [str(word) for word in arguments], env={"COLUMNS": "200"}, catch_exceptions=False)


def test_numbers_are_tried_on_a_grid_around_the_preset() -> None:
    assert values_of(0.1, FACTORS, "learning_rate") == [0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
    assert values_of(0.3, (3.0,), "learning_rate") == [0.3, 0.9]


def test_whole_numbers_stay_whole_and_are_tried_once() -> None:
    assert values_of(3, (0.5, 1, 1.1, 2), "rank") == [2, 3, 6]


def test_words_and_truth_values_stand_for_themselves() -> None:
    assert values_of("l2", ("l1", "l2"), "penalty") == ["l2", "l1"]
    assert values_of(True, (True, False), "two_stage") == [True, False]


@pytest.mark.parametrize(
    ("value", "tried", "words"),
    [
        (0.4, [0.1, 0.2, 0.4], "highest tried"),
        (0.1, [0.1, 0.2, 0.4], "lowest tried"),
        (0.2, [0.1, 0.2, 0.4], ""),
        (0.2, [0.2], ""),
        (True, [True, False], ""),
        ("seen", ["seen", "task"], ""),
    ],
)
def test_the_last_number_on_its_side_is_told(value: Any, tried: list[Any], words: str) -> None:
    assert edge_of(value, tried) == words


@pytest.mark.parametrize("values", [("l1",), (0.0, 1.0), (-2.0,)])
def test_factors_must_be_above_zero(values: tuple[Any, ...]) -> None:
    with pytest.raises(SettingsError, match="for the number 'rank'; list factors above 0"):
        values_of(3, values, "rank")


def walk(grid: Grid, num_trials: int, score: Callable[[Point], float]) -> list[Point]:
    """Return the points that so many trials try where the score is known."""
    scores: dict[Point, Score] = {}
    for size in round_sizes(num_trials):
        for trial in next_trials(grid, scores, size):
            scores[trial.point] = (score(trial.point), 0.0)
    return list(scores)


@pytest.mark.parametrize(
    ("num_trials", "peak", "expected"),
    [
        (1, 0.01, {0.01}),
        (3, 0.01, {0.005, 0.01, 0.02}),
        (4, 0.08, {0.005, 0.01, 0.02, 0.04}),
        (5, 0.01, {0.0025, 0.005, 0.01, 0.02, 0.04}),
        (5, 0.08, {0.005, 0.01, 0.02, 0.04, 0.08}),
        (7, 0.0, {0.000625, 0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04}),
        (100, 0.01, {0.01 * factor for factor in FACTORS}),
    ],
)
def test_trials_walk_towards_the_best_so_far(
    tiny_preset: Path, num_trials: int, peak: float, expected: set[float]
) -> None:
    grid = make_grid(str(tiny_preset), "clare", [], 1)
    found = walk(grid, num_trials, lambda point: -abs(point[0] - peak))
    assert found[0] == (0.01,)
    assert {rate for (rate,) in found} == expected


def test_more_trials_extend_fewer(tiny_preset: Path) -> None:
    def rates(num_trials: int, seed: int = 1) -> list[Point]:
        return walk(make_grid(str(tiny_preset), "clare", [], seed), num_trials, lambda point: float(point[0]))

    assert all(rates(9)[:number] == rates(number) for number in range(1, 9))
    assert len({tuple(rates(9, seed)) for seed in range(6)}) > 1


def test_several_settings_are_walked_together(tiny_preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tunable = {"learning_rate": (0.5, 1.0, 2.0), "sparsity": (0.9, 1.0, 1.04), "mask": ("learnt", "random")}
    monkeypatch.setattr("clare.runner.tune.tunable_of", lambda kind: tunable)
    grid = make_grid(str(tiny_preset), "clare", ["method.sparsity=0.97"], 1)
    seen = walk(grid, 100, lambda point: 0.0)
    assert seen[0] == (0.01, 0.97, "learnt")
    # 0.97 * 1.04 lies outside the bounds of a sparsity.
    assert len(set(seen)) == len(seen) == 3 * 2 * 2
    assert {sparsity for _, sparsity, _ in seen} == {0.97, 0.873}
    (trial,) = next_trials(grid, {}, 1)
    assert trial.experiment.method["mask"] == trial.settings["mask"] == "learnt"


def test_a_wrong_name_in_tunable_is_named(tiny_preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clare.runner.tune.tunable_of", lambda kind: {"sparsty": (0.5,)})
    with pytest.raises(SettingsError, match=r"'clare' lists 'sparsty' in `tunable`.*did you mean 'sparsity'"):
        make_grid(str(tiny_preset), "clare", [], 1)


def test_a_method_without_a_learning_rate_has_one_trial(tiny_preset: Path) -> None:
    (trial,) = next_trials(make_grid(str(tiny_preset), "simplecil", [], 1), {}, 6)
    assert trial.settings == {}
    assert trial.label == "simplecil"


def test_test_images_are_out_of_reach(tiny_preset: Path) -> None:
    words = validation_overrides(str(tiny_preset), "clare", ["method.epochs=1"], None)
    assert make_experiment(str(tiny_preset), "clare", words).stream.evaluate_on == "validation"
    with pytest.raises(SettingsError, match=r"--set stream\.evaluate_on=test would tune on test images; leave it out"):
        validation_overrides(str(tiny_preset), "clare", ["stream.evaluate_on=test"], None)
    assert validation_overrides(str(tiny_preset), "clare", ["stream.evaluate_on=validation"], None)


def test_the_first_tasks_are_taken_whole() -> None:
    stream = StreamSettings(first=5, increment=2, num_classes=10)
    assert [num_classes_of(stream, num_tasks) for num_tasks in (1, 2, 3, 4)] == [5, 7, 9, 10]
    with pytest.raises(SettingsError, match="--tasks got 5, but the preset's stream has 4"):
        num_classes_of(stream, 5)
    assert num_classes_of(StreamSettings(increment=3), 4) == 12


def test_a_tuned_preset_is_one_that_can_be_read(tiny_preset: Path, tmp_path: Path) -> None:
    chosen = {
        "clare": {"learning_rate": 0.02, "mask": "random", "two_stage": False, "head.scale": 9.5},
        "simplecil": {},
        "my file.py:Mine": {"learning_rate": 1e-05},
    }
    path = tmp_path / "mine-tuned.toml"
    path.write_text(tuned_preset(str(tiny_preset), chosen))
    values = tomllib.loads(path.read_text())
    assert values["methods"]["my file.py:Mine"] == {"learning_rate": 1e-05}
    assert "simplecil" not in values["methods"]
    settings = make_experiment(str(path), "clare").method
    assert (settings["learning_rate"], settings["mask"], settings["two_stage"]) == (0.02, "random", False)
    assert settings["head"]["scale"] == 9.5
    assert settings["epochs"] == make_experiment(str(tiny_preset), "clare").method["epochs"]
    assert tomllib.loads(tuned_preset("quickdraw", {}))["extends"] == "quickdraw"


def test_the_best_trial_becomes_a_preset(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("tune", tiny_preset, "--methods", "linear,finetune,simplecil", "--seed", "2", "--tasks", "2")
    options = ("--set", "stream.train_per_class=5", "--out", tmp_path)
    result = invoke(*command, "--trials", "2", *options)
    assert result.exit_code == 0, result.output
    assert "simplecil: 1 of 2 trials, there is no more to try" in result.output
    tuned = json.loads((tmp_path / "tune.json").read_text())
    assert (tuned["evaluate_on"], tuned["seed"], tuned["num_tasks"]) == ("validation", 2, 2)
    assert [trial["method"] for trial in tuned["trials"]] == ["linear"] * 2 + ["finetune"] * 2 + ["simplecil"]
    for method in ("linear", "finetune"):
        own = [trial for trial in tuned["trials"] if trial["method"] == method]
        best = max(own, key=lambda trial: (trial["final_accuracy"], trial["average_accuracy"]))
        assert tuned["chosen"][method] == best["settings"]
        # Of two rates each is the last on its side.
        rates = [trial["settings"]["learning_rate"] for trial in own]
        rate = best["settings"]["learning_rate"]
        edge = "highest" if rate == max(rates) else "lowest"
        assert f"{method}: the best learning_rate, {rate}, is the {edge} tried; more --trials may" in result.output
    for folder in (tmp_path / "trials").iterdir():
        preset = json.loads((folder / "preset.json").read_text())
        assert preset["stream"]["evaluate_on"] == "validation"
        assert preset["stream"]["num_classes"] == 4
        assert preset["seed"] == 2
    experiment = make_experiment(str(tmp_path / "tiny-tuned.toml"), "finetune")
    assert experiment.method["learning_rate"] == tuned["chosen"]["finetune"]["learning_rate"]
    assert experiment.stream.evaluate_on == "test"
    assert (experiment.stream.num_classes, experiment.stream.train_per_class) == (6, 6)

    started: list[Path] = []

    def counted(experiment: Experiment, folder: Path, listener: Listener) -> None:
        started.append(folder)
        run_experiment(experiment, folder, listener)

    monkeypatch.setattr("clare.runner.jobs.run_experiment", counted)
    assert invoke(*command, "--trials", "3", *options).exit_code == 0
    assert len(started) == 2
    longer = json.loads((tmp_path / "tune.json").read_text())["trials"]
    assert [trial for trial in longer if trial in tuned["trials"]] == tuned["trials"]
    assert len(longer) == 3 + 3 + 1


def test_a_trial_that_diverges_loses(tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clare.runner.tune.tunable_of", lambda kind: {"learning_rate": (1.0, 10_000.0)})
    wild = [word for text in ("weight_decay=1", "batch_size=2", "epochs=8") for word in ("--set", f"method.{text}")]
    result = invoke("tune", tiny_preset, "--methods", "finetune", "--trials", "2", *wild, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    trials = json.loads((tmp_path / "tune.json").read_text())["trials"]
    assert "the loss of task 1 became " in trials[1]["error"]
    assert json.loads((tmp_path / "tune.json").read_text())["chosen"] == {"finetune": {"learning_rate": 0.01}}
    assert "failed" in result.output


def test_a_method_whose_trials_all_fail_is_named(tiny_preset: Path, tmp_path: Path) -> None:
    wrong = ("--set", "transforms.image_size=20")
    result = invoke("tune", tiny_preset, "--methods", "simplecil", "--out", tmp_path, *wrong)
    assert result.exit_code == 1
    assert "error: no trial of simplecil came to its end: `transforms.image_size` is 20" in result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--methods", ","], "--methods is empty"),
        (["--methods", "clair"], "there is no method 'clair'"),
        (["--methods", "clare", "--set", "stream.evaluate_on=test"], "would tune on test images"),
        (["--methods", "clare", "--tasks", "9"], "--tasks got 9, but the preset's stream has 3"),
    ],
)
def test_wrong_words_are_named(tiny_preset: Path, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        invoke("tune", tiny_preset, *arguments, "--out", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_trials_run_in_several_processes(tiny_preset: Path, tmp_path: Path) -> None:
    result = invoke("tune", tiny_preset, "--methods", "linear", "--trials", "2", "--jobs", "2", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert all("error" not in trial for trial in json.loads((tmp_path / "tune.json").read_text())["trials"])
    assert len(list((tmp_path / "trials").glob("*/log.txt"))) == 2
