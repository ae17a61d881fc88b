"""The scaling benchmark on tiny streams: what it runs and how it counts."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from clare.data.sources import DataSettings, load_dataset

WIDTH = 24
BACKBONE = {"weights": "random", "architecture": {"embed_dim": WIDTH, "depth": 2, "num_heads": 2}}


@pytest.fixture
def scaling(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("scaling")


def tiny(scaling: ModuleType) -> Any:
    """Return conditions under which a task takes a moment."""
    return scaling.Conditions(train_per_class=3, images_per_evaluation=5, align_samples=4, backbone=BACKBONE)


def test_every_class_comes_upright_and_turned(scaling: ModuleType) -> None:
    drawings = scaling.load_drawings(1)
    assert len(drawings.classes) == len(set(drawings.classes)) == 690
    for part, num_images in ((drawings.train, 80), (drawings.test, 20)):
        assert torch.bincount(part.labels).tolist() == [num_images] * 690
    pretrain = load_dataset(DataSettings(dataset="quickdraw-pretrain", channels=1))
    name = pretrain.classes[7]

    def pixels(dataset: Any, name: str) -> torch.Tensor:
        chosen = (dataset.test.labels == dataset.classes.index(name)).nonzero().squeeze(1)
        found: torch.Tensor = dataset.test.batch(chosen)[0].pixels
        return found

    assert torch.equal(pixels(drawings, name), pixels(pretrain, name))
    assert torch.equal(pixels(drawings, f"{name}, turned"), pixels(pretrain, name).rot90(1, (2, 3)))


@pytest.mark.parametrize("head", ["prototype", "aligned"])
def test_a_tiny_stream_is_measured(scaling: ModuleType, head: str) -> None:
    row = scaling.measure_stream(3, head, tiny(scaling))
    num_statistics = 6 * (WIDTH + WIDTH * WIDTH) if head == "aligned" else 0
    parts = row["checkpoint_bytes"]
    assert (row["num_tasks"], row["num_classes"]) == (3, 6)
    assert parts["head_rows"] == 6 * WIDTH * 4
    assert parts["class_statistics"] == num_statistics * 4
    assert parts["rest"] == 2 * WIDTH * 4
    assert 0 < row["last_commit_bytes"] < row["model_folder_bytes"]
    assert row["free_share"] == pytest.approx(0.99**3, abs=2e-3)
    assert (row["seconds"]["align"]["median"] == 0) == (head == "prototype")
    assert row["flat"] is not None
    assert row["slope_ms"] is None
    parts = [row["seconds"][kind]["first"] for kind in ("learn", "align", "evaluate", "commit")]
    assert row["seconds"]["whole"]["first"] == pytest.approx(sum(parts), abs=1e-3)


def test_tasks_and_evaluations_have_the_same_size_whatever_the_stream(scaling: ModuleType, tmp_path: Path) -> None:
    for num_tasks in (1, 4):
        run = scaling.Run(tmp_path / str(num_tasks), num_tasks, "prototype", tiny(scaling))
        assert [len(task.train) for task in run.stream.tasks] == [6] * num_tasks
        run.task(0)
        assert run.evaluate(0, 50).shape == (50, 2)


def test_the_final_evaluation_takes_images_of_all_seen_classes(
    scaling: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scaling.Run(tmp_path / "run", 4, "prototype", tiny(scaling))
    monkeypatch.setattr(scaling, "predict_logits", lambda context, method, images: images.labels)
    assert sorted(set(run.evaluate(2, 6).tolist())) == [0, 1, 2, 3, 4, 5]


def test_flatness_compares_the_ends_without_task_zero(scaling: ModuleType) -> None:
    assert scaling.flatness([9.0, 1.0]) is None
    assert scaling.flatness([9.0, 2.0, 3.0]) == 1.5
    assert scaling.flatness([9.0, 1.0, 2.0, 3.0, *[50.0] * 23, 4.0, 5.0, 6.0]) == 2.5
    assert scaling.flatness([9.0, 1.0, 1.0, 7.0, *[50.0] * 14, 3.0, 5.0]) == 4.0


def test_a_slope_is_the_growth_over_a_hundred_tasks(scaling: ModuleType) -> None:
    assert scaling.slope_ms([9.0] * 9) is None
    assert scaling.slope_ms([9.0, *(1 + 0.002 * number for number in range(1, 30))]) == 200.0


def test_long_streams_have_classes_turned_and_mirrored(scaling: ModuleType) -> None:
    drawings = scaling.load_drawings(1, 6)
    assert len(set(drawings.classes)) == 6 * 345
    pixels = [
        drawings.train.batch((drawings.train.labels == 7 + way * 345).nonzero()[:1, 0])[0].pixels for way in range(6)
    ]
    assert len({tuple(image.flatten().tolist()) for image in pixels}) == 6
    assert torch.equal(pixels[5], pixels[4].rot90(1, (2, 3)))


def test_checkpoint_parts_count_bytes_by_name(scaling: ModuleType) -> None:
    tensors = {
        "adapter.values": torch.zeros(10),
        "ledger.free": torch.zeros(10, dtype=torch.bool),
        "head.rows": torch.zeros(2, 3),
        "head.factors": torch.zeros(2, 3, 3),
        "head.block": torch.zeros(1, 3),
        "something.new": torch.zeros(1, dtype=torch.float64),
    }
    expected = {"adapter_and_ledger": 50, "head_rows": 24, "class_statistics": 72, "rest": 20}
    assert scaling.checkpoint_parts(tensors) == expected


def test_memory_is_told_as_growth_or_not_at_all(scaling: ModuleType) -> None:
    figures = scaling.memory_figures(100_000_000, [130_000_000, 170_000_000, 150_000_000])
    assert figures == {
        "before_first_task": 100.0,
        "peak": 170.0,
        "peak_minus_before": 70.0,
        "first_task_minus_before": 30.0,
        "last_task_minus_before": 50.0,
    }
    assert scaling.memory_figures(None, [None]) is None
