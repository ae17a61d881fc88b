"""The JPEG benchmark on a few pictures: what it makes, what it runs and how it counts."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

from clare.backbones.vit import BackboneSettings
from clare.engine.settings import EngineSettings

BACKBONE = BackboneSettings(weights="random", architecture={"in_chans": 3, "embed_dim": 24, "depth": 2, "num_heads": 2})


@pytest.fixture
def jpegs(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("jpegs")


@pytest.fixture
def root(script: Callable[[str], ModuleType], tmp_path: Path) -> Path:
    """Return a folder of fifty pictures."""
    script("pictures").write_pictures(tmp_path / "pictures", 50)
    return tmp_path / "pictures"


def test_pictures_fill_a_tree_of_ten_classes_and_weigh_what_photographs_do(root: Path) -> None:
    files = sorted(root.glob("*/*/*.jpg"))
    counts = {part: [len(list(folder.iterdir())) for folder in (root / part).iterdir()] for part in ("train", "test")}
    assert counts == {"train": [4] * 10, "test": [1] * 10}
    for file in files:
        with Image.open(file) as picture:
            assert (picture.format, picture.size) == ("JPEG", (500, 375))
    assert 40_000 < sum(file.stat().st_size for file in files) / len(files) < 90_000


def test_a_picture_is_decided_by_its_number(script: Callable[[str], ModuleType], root: Path, tmp_path: Path) -> None:
    script("pictures").write_pictures(tmp_path / "again", 50)
    contents = [file.read_bytes() for file in sorted(root.glob("*/*/*.jpg"))]
    assert contents == [file.read_bytes() for file in sorted((tmp_path / "again").glob("*/*/*.jpg"))]
    assert len(set(contents)) == 50


def test_both_sides_run_over_the_same_pictures(jpegs: ModuleType, root: Path) -> None:
    plan = jpegs.Plan(root, BACKBONE, jpegs.transform_settings(28), epochs=2, num_workers=0)
    result = jpegs.measure(plan, ["device", "encoded"], [64, 0], "cpu", EngineSettings(device="cpu"))
    assert (result["num_train_images"], result["num_test_images"]) == (40, 10)
    rows = [(row["store"], row["store_size"]) for row in result["rows"]]
    assert rows == [("device", 64), ("device", 0), ("encoded", 64), ("encoded", 0)]
    num_pixels = [64 * (64 * 500 // 375), 375 * 500]
    *decoded, shrunk, encoded = (row["store_mb"] for row in result["rows"])
    assert decoded == [round(50 * 3 * num / 1e6, 1) for num in num_pixels]
    assert shrunk < encoded < decoded[1]
    differences = [row["pixel_difference"] for row in result["rows"]]
    assert 0 < differences[2] < 4
    assert differences[:2] + differences[3:] == [0, 0, 0]
    for row in result["rows"]:
        seconds = row["seconds"]
        assert seconds["load"] <= seconds["cold_to_first_step"] <= seconds["cold_to_first_epoch"]
        assert set(row["ratios"]) == set(seconds) - {"load"}
    yardstick = result["reference"]["seconds"]
    assert yardstick["load"] == 0
    assert 0 < yardstick["cold_to_first_step"] <= yardstick["cold_to_first_epoch"] == yardstick["first_epoch"]


def test_ratios_say_how_many_times_as_long_the_reference_takes(jpegs: ModuleType) -> None:
    ours = jpegs.Seconds(3.0, 4.0, 8.0, 5.0, 2.0, 0.5)
    other = jpegs.Seconds(0.0, 1.0, 8.0, 8.0, 6.0, 2.0)
    assert jpegs.ratios(ours, other) == {
        "cold_to_first_step": 0.25,
        "cold_to_first_epoch": 1.0,
        "first_epoch": 1.6,
        "later_epoch": 3.0,
        "evaluation": 4.0,
    }


def test_the_clock_notes_the_first_step_and_every_epoch(jpegs: ModuleType) -> None:
    clock = jpegs.Clock(torch.device("cpu"))
    clock.epoch(0, 2)
    clock.batch()
    first = clock.first_step
    clock.batch()
    clock.epoch(1, 2)
    assert clock.first_step == first
    assert clock.epochs[0] <= first <= clock.epochs[1]


def test_the_embedded_architecture_is_built_for_colour(jpegs: ModuleType) -> None:
    assert jpegs.backbone_settings("quickdraw-vit").architecture == {"in_chans": 3}
    assert jpegs.backbone_settings("vit_base_patch16_224").architecture == {}
    assert (jpegs.transform_settings(224).resize, jpegs.transform_settings(28).resize) == (256, 32)
