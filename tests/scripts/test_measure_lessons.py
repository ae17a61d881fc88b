"""What lessons cost: the script that measures it, what it kept, and the page that shows it."""

import json
from pathlib import Path
from typing import Any

import pytest
from own_worlds import tiny_weights, write_pictures

from clare.backbones.vit import BackboneSettings, load_backbone
from clare.classifier.defaults import DEFAULT_METHOD, default_settings
from clare.registry import load_file
from clare.upgrade import upgraded_method

ROOT = Path(__file__).parents[2]
script = load_file(ROOT / "scripts" / "measure_lessons.py", "which measures lessons")
KEPT = [json.loads(path.read_text()) for path in sorted(script.KEPT.glob("*.json"))]


def test_classes_are_dealt_out_once() -> None:
    names = [f"class {place}" for place in range(20)]
    lessons = script.in_lessons(names, 12, 4, order=3)
    assert [len(lesson) for lesson in lessons] == [3, 3, 3, 3]
    flat = [name for lesson in lessons for name in lesson]
    assert len(set(flat)) == 12
    assert script.in_lessons(names, 12, 4, order=4) != lessons


def test_pictures_are_counted_among_all_names_and_among_some() -> None:
    found = [("a", ["c", "a", "b"]), ("a", ["a", "b", "c"]), ("c", ["c", "b", "a"])]
    assert script.share_right(found, ["a"]) == 50.0
    assert script.share_right(found, ["a"], among=["a", "b"]) == 100.0
    assert script.share_right(found, ["a", "c"]) == pytest.approx(66.67)


def test_a_lesson_costs_what_the_classes_before_it_lost() -> None:
    after = [
        {"accuracy": 90.0, "earlier": None, "earlier_among_themselves": None},
        {"accuracy": 80.0, "earlier": 84.0, "earlier_among_themselves": 91.0},
        {"accuracy": 81.0, "earlier": 79.0, "earlier_among_themselves": 79.5},
    ]
    assert script.falls(after) == {"greatest_fall": 6.0, "greatest_fall_among_themselves": 0.5}


@pytest.mark.parametrize("choice", ["default", "clare, quick"])
def test_a_folder_is_measured_and_its_command_named(tmp_path: Path, choice: str) -> None:
    for part, seed in (("train", 0), ("test", 1)):
        write_pictures(tmp_path / "shapes" / part, "cat", "dog", "bus", "van", seed=seed)
    weights = tiny_weights(tmp_path).weights
    words = ["--pictures", str(tmp_path / "shapes"), "--backbone", weights, "--classes", "4", "--lessons", "2"]
    script.main([*words, "--choice", choice, "--device", "cpu", "--out", str(tmp_path / "out")])
    (file,) = (tmp_path / "out").iterdir()
    run: dict[str, Any] = json.loads(file.read_text())
    assert [len(lesson) for lesson in run["classes"]] == [2, 2]
    assert run["command"].endswith(
        f"--classes 4 --lessons 2 --order 1 --choice {'default' if choice == 'default' else repr(choice)}"
    )
    assert run["after"][1]["earlier"] <= run["after"][1]["earlier_among_themselves"]
    assert str(tmp_path) not in run["command"]


def test_the_page_shows_what_was_kept() -> None:
    page = (ROOT / "docs" / "own_pictures.md").read_text()
    assert script.table() in page


def test_by_default_nothing_is_forgotten_and_nobody_is_far_ahead() -> None:
    assert {run["data"] for run in KEPT} == {"cifar100", "cub200", "drawings"}
    for data in {run["data"] for run in KEPT}:
        own = [run for run in KEPT if run["data"] == data]
        last: dict[str, list[float]] = {}
        for run in own:
            last.setdefault(run["choice"], []).append(run["after"][-1]["accuracy"])
        # The default's head is measured on drawings; on photos it is the one that was the default before.
        assert last.keys() | {"default"} == script.CHOICES.keys()
        means = {choice: sum(values) / len(values) for choice, values in last.items()}
        assert means.get("default", means["quadratic"]) >= max(means.values()) - 1
        assert all(run["greatest_fall_among_themselves"] <= 5 for run in own if run["choice"] in script.FROZEN)
        assert all(run["commit"] for run in own)


@pytest.mark.parametrize("data", ["cifar100", "cub200", "drawings"])
def test_what_was_measured_as_the_default_is_the_default(data: str) -> None:
    photos = BackboneSettings(name="vit_small_patch14_dinov2", weights="random", image_size=112)
    backbone = load_backbone(BackboneSettings() if data == "drawings" else photos)
    ours = default_settings(backbone, DEFAULT_METHOD, {})
    for run in KEPT:
        if (run["data"], run["choice"]) == (data, "default"):
            # Settings of a record have the names of its day.
            measured = type(ours).model_validate(upgraded_method(run["settings"], DEFAULT_METHOD))
            assert (run["method"], measured) == (DEFAULT_METHOD, ours)
