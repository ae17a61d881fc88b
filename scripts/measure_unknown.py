"""Measure the score of being none of the known classes on drawings of classes that were never taught."""

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clare.data.images import Pixels
from clare.data.sources import Dataset, DataSettings, load_dataset
from clare.data.store import LabelledImages
from clare.files import write_json
from clare.model.records import Mode
from clare.own.taught import TaughtModel
from clare.version import __version__

SEED = 0
NUM_STRANGERS = 100
CLASSES_PER_TASK = 10
DRAWINGS_PER_CLASS = 40
CASES: tuple[tuple[int, Mode], ...] = ((10, "learn"), (30, "learn"), (10, "quick"), (30, "quick"))


def drawings(images: LabelledImages, label: int) -> list[Pixels]:
    """Return the drawings of a class."""
    canvas, _ = images.batch((images.labels == label).nonzero().squeeze(1))
    return [image[0].numpy() for image in canvas.pixels]


def area_under_curve(known: torch.Tensor, unknown: torch.Tensor) -> float:
    """Return the chance that an unknown drawing scores higher than a known one."""
    higher = (unknown[:, None] > known[None]).double() + 0.5 * (unknown[:, None] == known[None]).double()
    return float(higher.mean())


def measure(dataset: Dataset, order: list[int], num_classes: int, mode: Mode) -> dict[str, Any]:
    """Teach classes task by task, and score test drawings of these and of others."""
    with tempfile.TemporaryDirectory() as folder:
        model = TaughtModel.create(Path(folder) / "model", device="cpu")
        for start in range(0, num_classes, CLASSES_PER_TASK):
            task = order[start : start + CLASSES_PER_TASK]
            lesson = {dataset.classes[label]: drawings(dataset.train, label)[:DRAWINGS_PER_CLASS] for label in task}
            model.teach(lesson, mode=mode)
        parts = []
        for labels in (order[:num_classes], order[-NUM_STRANGERS:]):
            images = [image for label in labels for image in drawings(dataset.test, label)]
            parts.append(torch.tensor([guess.unknown for guess in model.predict(images, top=1)]))
        known, unknown = parts
        evaluation = model.evaluate(
            {dataset.classes[label]: drawings(dataset.test, label) for label in order[:num_classes]}
        )
        return {
            "num_classes": num_classes,
            "mode": mode,
            "threshold": model.threshold,
            "num_known": len(known),
            "num_unknown": len(unknown),
            "known_below": float((known < model.threshold).double().mean()),
            "unknown_above": float((unknown >= model.threshold).double().mean()),
            "area_under_curve": area_under_curve(known, unknown),
            "accuracy": evaluation.accuracy,
            "calibration": model.calibration,
        }


def main() -> None:
    """Write results/unknown_score.json, or the file that is named."""
    dataset = load_dataset(DataSettings(dataset="quickdraw", channels=1))
    order = np.random.RandomState(SEED).permutation(len(dataset.classes)).tolist()
    models = [measure(dataset, order, num_classes, mode) for num_classes, mode in CASES]
    facts = {
        "what": "scores of test drawings of taught classes and of 100 classes never taught, 20 drawings each",
        "command": "python scripts/measure_unknown.py",
        "clare": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "seed": SEED,
        "models": models,
    }
    write_json(Path(sys.argv[1] if len(sys.argv) > 1 else "results/unknown_score.json"), facts)
    print(json.dumps(models, indent=2))


if __name__ == "__main__":
    main()
