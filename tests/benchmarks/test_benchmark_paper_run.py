"""The paper's run at a tiny size: every method over the whole stream, and the plain loop beside them."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.slow
def test_a_small_run_is_measured_whole(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper_run = script("paper_run")
    out = tmp_path / "found.json"
    words = ["--small", "--methods", "clare,ease", "--compile", "off,auto", "--plain-tasks", "2", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["paper_run.py", *words])
    paper_run.main()
    found = json.loads(out.read_text())
    assert [row["method"] for row in found["rows"]] == ["clare", "clare", "ease", "plain loop"]
    assert [row["settings"].get("engine.compile") for row in found["rows"]] == ["off", "auto", "off", None]
    *runs, plain = found["rows"]
    for row in runs:
        assert row["num_tasks"] == 3
        assert row["to_first_task"] + row["learning"] + row["evaluating"] <= row["seconds"] + 0.1
    assert (plain["measured_tasks"], plain["num_tasks"]) == (2, 3)
    assert plain["measured_seconds"] < plain["seconds"]


def test_a_tree_has_the_shape_of_imagenet_a(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    script("pictures").write_tree(tmp_path, ["train"] * 7 + ["test"] * 3, 4)
    counts = {
        part: [len(list(folder.iterdir())) for folder in sorted((tmp_path / part).iterdir())]
        for part in ("train", "test")
    }
    assert counts == {"train": [2, 2, 2, 1], "test": [1, 1, 1]}


def test_the_plain_loop_sees_the_classes_of_a_task_alone(script: Callable[[str], ModuleType]) -> None:
    import numpy as np

    pictures = script("reference").Pictures(lambda index: index, np.array([0, 0, 1, 2, 2, 1]), lambda image: image)
    own = pictures.of_classes([2, 1])
    assert [own[place] for place in range(len(own))] == [(0, 3, 0), (1, 4, 0), (2, 2, 1), (3, 5, 1)]
