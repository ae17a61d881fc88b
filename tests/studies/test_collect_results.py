"""From run folders to results: what is kept, what is left out, and where it goes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clare.errors import RunError
from clare.presets.load import make_experiment
from clare.report.groups import rank
from clare.report.record import read_run

Script = Callable[[str], ModuleType]
WriteRun = Callable[..., Path]


@pytest.fixture(scope="session")
def collect(script: Script) -> ModuleType:
    """Return the module under test."""
    return script("collect_results")


@pytest.fixture(scope="session")
def files(script: Script) -> ModuleType:
    """Return the module that reads and writes results."""
    return script("result_files")


def preset_of(method: str = "clare", *overrides: str, seed: int = 1993) -> dict[str, Any]:
    """Return a preset of the package as a run writes it down."""
    return make_experiment("quickdraw", method, overrides, seed).model_dump(mode="json")


def only(folder: Path) -> Path:
    """Return the one result below a folder."""
    (path,) = folder.rglob("*.json")
    return path


def test_a_run_becomes_one_small_file_with_its_figures(
    collect: ModuleType, write_run: WriteRun, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run", preset=preset_of())
    assert collect.main([str(folder), "--home", str(tmp_path / "home")]) == []
    path = only(tmp_path / "home")
    assert path == tmp_path / "home/results/quickdraw/clare/1993.json"
    result, run = json.loads(path.read_text()), read_run(folder)
    assert result["seen_accuracy"] == pytest.approx([task.seen for task in run.tasks], abs=1e-6)
    assert [len(row) for row in result["accuracy_matrix"]] == [1, 2, 3]
    assert result["accuracy_matrix"][2] == [round(value, 4) for value in run.tasks[2].per_task]
    assert result["final_accuracy"] == result["seen_accuracy"][-1]
    assert result["new_task_accuracy"] == pytest.approx(np.mean([task.new for task in run.tasks]), abs=1e-5)
    assert result["seconds"] == {"learn": [10.0] * 3, "evaluate": [1.0] * 3}
    assert (result["num_trained"], result["num_stored"][-1], result["passes_per_image"]) == (1200, 3600, 2)
    assert result["command"] == "clare train quickdraw --method clare --seed 1993"
    assert (result["stream"], result["row"]) == ("quickdraw", "clare")
    assert re.fullmatch(r"[0-9a-f]{16}", result["settings_hash"])
    assert result["commit"] is None
    assert result["environment"]["torch"] == "2.15.0"
    assert result["settings"]["method"]["sparsity"] == 0.95
    assert result["started"] == "2001-09-09T01:46:40+00:00"
    assert result["head"] == read_run(folder).head != ""
    assert len(path.read_text().splitlines()) < 200
    copy = json.loads((folder / "environment.json").read_text()) | {"commit": "0123abc"}
    (folder / "environment.json").write_text(json.dumps(copy))
    assert collect.main([str(folder), "--home", str(tmp_path / "home")]) == []
    assert json.loads(path.read_text())["commit"] == "0123abc"


@pytest.mark.parametrize("words", [[], ["--shared-device"]])
def test_a_result_says_whether_its_device_was_shared(
    collect: ModuleType, write_run: WriteRun, tmp_path: Path, words: list[str]
) -> None:
    folder = write_run(tmp_path / "run", preset=preset_of())
    assert collect.main([str(folder), "--home", str(tmp_path / "home"), *words]) == []
    assert json.loads(only(tmp_path / "home").read_text())["shared_device"] is bool(words)


def test_a_result_ranks_as_the_run_it_was_made_of(
    collect: ModuleType, files: ModuleType, write_run: WriteRun, tmp_path: Path
) -> None:
    folders = [
        write_run(tmp_path / f"{method}-{seed}", method, skill=skill, seed=seed, preset=preset_of(method, seed=seed))
        for method, skill in (("clare", 0.9), ("finetune", 0.7))
        for seed in (1, 2)
    ]
    assert collect.main([*map(str, folders), "--home", str(tmp_path / "home")]) == []
    stored = [files.read_result(path) for path in sorted((tmp_path / "home/results/quickdraw").glob("*/*.json"))]
    assert [(run.method, run.seed) for run in stored] == [("clare", 1), ("clare", 2), ("finetune", 1), ("finetune", 2)]
    of_runs, of_results = (
        [(each.group.label, each.intervals, each.group.figures) for each in next(iter(rank(runs).values()))]
        for runs in ([read_run(folder) for folder in folders], stored)
    )
    assert len(of_runs) == 2
    assert of_runs[1][1] is not None
    for (label, interval, figures), (again, interval_again, figures_again) in zip(of_runs, of_results, strict=True):
        assert (label, interval) == (again, interval_again)
        for name, spread in figures.items():
            assert figures_again[name] == pytest.approx(spread, abs=1e-4)


@pytest.mark.parametrize(
    ("overrides", "row"),
    [
        ((), "clare"),
        (("method.mask=random",), "clare-random-mask"),
        (("method.head.kind=prototype",), "clare-prototype"),
        # What does not differ from the preset, and what only says where it is computed, is no other row.
        (("method.mask=learnt", "engine.compile=off", "engine.device=cpu", "data.root=/mnt/sets"), "clare"),
        (("method.head.kind=discriminant",), "clare-discriminant"),
    ],
)
def test_a_run_belongs_to_the_row_with_its_settings(
    collect: ModuleType, write_run: WriteRun, tmp_path: Path, overrides: tuple[str, ...], row: str
) -> None:
    folder = write_run(tmp_path / "run", preset=preset_of("clare", *overrides))
    assert collect.main([str(folder), "--home", str(tmp_path / "home")]) == []
    assert only(tmp_path / "home") == tmp_path / f"home/results/quickdraw/{row}/1993.json"


def test_a_run_from_before_a_setting_had_its_default(
    collect: ModuleType, study: Any, write_run: WriteRun, tmp_path: Path
) -> None:
    preset = study.experiment("cub200-50x4", study.row("clare-plus-no-patches-1-view"), 1993).model_dump(mode="json")
    for later in ("centre", "views"):
        del preset["method"]["features"][later]
    folder = write_run(tmp_path / "run", "clare-plus", preset=preset)
    assert collect.main([str(folder), "--home", str(tmp_path / "home")]) == []
    assert only(tmp_path / "home").parent.name == "clare-plus-no-patches-1-view"


def test_a_run_of_no_row_or_stream_is_refused(collect: ModuleType, write_run: WriteRun, tmp_path: Path) -> None:
    write_run(tmp_path / "all/other", preset=preset_of("clare", "method.sparsity=0.123"))
    write_run(tmp_path / "all/strange", preset=preset_of() | {"name": "mine"})
    sentences = collect.main([str(tmp_path / "all"), "--home", str(tmp_path / "home")])
    assert re.search(r"other has the settings of no row of study\.toml; add a row", sentences[0])
    assert re.search(r"strange is on 'mine', which is no stream of study\.toml; add it there", sentences[1])
    assert not (tmp_path / "home").exists()


def test_no_path_of_the_machine_is_kept(collect: ModuleType, write_run: WriteRun, tmp_path: Path) -> None:
    overrides = (
        "data.root=/mnt/some where/cifar100",
        "data.cache=~/.cache/clare",
    )
    preset = preset_of("clare", *overrides)
    folder = write_run(tmp_path / "run", preset=preset)
    assert collect.main([str(folder), "--home", str(tmp_path / "home")]) == []
    text = only(tmp_path / "home").read_text()
    result = json.loads(text)
    assert result["settings"]["data"]["root"] == "cifar100"
    assert result["settings"]["overrides"] == ["data.root=cifar100", "data.cache=clare"]
    for word in ("/mnt", "some where", "lab", "~", str(tmp_path), "/.cache"):
        assert word not in re.sub(r'"(right|classes)": .*', "", text)


PART = st.from_regex(r"[a-z][a-z0-9_.-]{0,6}", fullmatch=True)


@given(st.sampled_from(["/", "~/", "../", "./"]), st.lists(PART, min_size=1, max_size=4))
def test_a_path_anywhere_leaves_its_last_part(files: ModuleType, start: str, parts: list[str]) -> None:
    path = start + "/".join(parts)
    preset = {
        "data": {"root": path, "names": [f"at {path}"]},
        "backbone": {"name": "hub/vit", "weights": path},
        "overrides": [f"backbone.weights={path}", f"other.key='{path}'", "method.mask=random"],
        "error": f"could not read {path}",
    }
    last = parts[-1]
    assert files.without_paths(preset) == {
        "data": {"root": last, "names": [f"at {last}"]},
        "backbone": {"name": "hub/vit", "weights": last},
        "overrides": [f"backbone.weights={last}", f"other.key={last}", "method.mask=random"],
        "error": f"could not read {last}",
    }


def test_figures_on_validation_images_stay_apart(collect: ModuleType, write_run: WriteRun, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", preset=preset_of("clare", "stream.evaluate_on=validation"))
    collect.main([str(folder), "--home", str(tmp_path / "home")])
    assert only(tmp_path / "home") == tmp_path / "home/validation/quickdraw/clare/1993.json"


def test_an_unfinished_run_is_refused_and_the_others_are_kept(
    collect: ModuleType, write_run: WriteRun, tmp_path: Path
) -> None:
    write_run(tmp_path / "all/cut", num_tasks=2, preset=preset_of())
    write_run(tmp_path / "all/done", "finetune", preset=preset_of("finetune"))
    (sentence,) = collect.main([str(tmp_path / "all"), "--home", str(tmp_path / "home")])
    assert re.search(r"cut ended after 2 of 3 tasks; finish it", sentence)
    assert only(tmp_path / "home").parent.name == "finetune"


def test_one_experiment_twice_is_refused(collect: ModuleType, write_run: WriteRun, tmp_path: Path) -> None:
    folders = [str(write_run(tmp_path / name, preset=preset_of())) for name in ("one", "two")]
    (sentence,) = collect.main([*folders, "--home", str(tmp_path / "home")])
    assert "are the same experiment; collect one of them" in sentence


def test_no_folder_is_told_in_a_sentence(collect: ModuleType, tmp_path: Path) -> None:
    (sentence,) = collect.main([str(tmp_path / "nothing"), "--home", str(tmp_path / "home")])
    assert sentence.startswith("there is no folder")
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned/tune.json").write_text("{}")
    (sentence,) = collect.main([str(tmp_path / "tuned"), "--home", str(tmp_path / "home")])
    assert "is not what `clare tune` writes" in sentence


def test_the_last_predictions_are_enough_for_the_answers(
    collect: ModuleType, files: ModuleType, write_run: WriteRun, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run", preset=preset_of())
    *earlier, last = sorted((folder / "predictions").iterdir())
    assert collect.main([str(folder), "--home", str(tmp_path / "whole")]) == []
    for path in earlier:
        path.unlink()
    assert collect.main([str(folder), "--home", str(tmp_path / "last")]) == []
    assert last.is_file()
    whole, alone = (files.read_result(only(tmp_path / name)).result for name in ("whole", "last"))
    assert alone["final_answers"] == whole["final_answers"] is not None


def test_a_run_without_predictions_has_figures_and_no_interval(
    collect: ModuleType, files: ModuleType, write_run: WriteRun, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run", preset=preset_of())
    for path in (folder / "predictions").iterdir():
        path.unlink()
    assert collect.main([str(folder), "--home", str(tmp_path / "home")]) == []
    run = files.read_result(only(tmp_path / "home"))
    assert len(run.tasks) == 3
    with pytest.raises(RunError, match="holds no answers; collect the run again"):
        _ = run.evaluations


def test_a_damaged_result_is_told_in_a_sentence(files: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    for text in ("{", "[]", '{"preset": "x"}'):
        path.write_text(text)
        with pytest.raises(RunError, match=r"1\.json is no result of a run .*; collect the run again"):
            files.read_result(path)


def test_the_trials_of_a_tuning_are_copied_without_paths(collect: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-tune"
    folder.mkdir()
    trials = [
        {"method": "clare", "settings": {"learning_rate": 0.1}, "final_accuracy": 0.5},
        {"method": "clare", "settings": {"learning_rate": 9.0}, "error": "could not write /mnt/run/x.json; free space"},
    ]
    tuned = {
        "preset": "cifar+/mnt/lab/vits.toml",
        "overrides": ["data.root=/mnt/data"],
        "trials": trials,
        "chosen": {"clare": {"learning_rate": 0.1}},
    }
    (folder / "tune.json").write_text(json.dumps(tuned))
    assert collect.main([str(folder), "--home", str(tmp_path / "home")]) == []
    path = tmp_path / "home/tuning/cifar-tune.json"
    assert "/mnt" not in path.read_text()
    copy = json.loads(path.read_text())
    assert (copy["preset"], copy["overrides"]) == ("cifar+vits", ["data.root=data"])
    assert copy["trials"][0] == trials[0]
    (folder / "tune.json").write_text(json.dumps(tuned | {"preset": "cifar+vitb"}))
    (sentence,) = collect.main([str(folder), "--home", str(tmp_path / "home")])
    assert sentence.endswith("holds the trials of cifar+vits, not of cifar+vitb; give the folder another name")
    assert json.loads(path.read_text()) == copy
