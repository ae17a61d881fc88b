"""Measure the score of being none of the known classes, and the probabilities, on drawings that were not taught."""

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clare.classifier.certainty import calibration_error
from clare.classifier.classifier import Classifier
from clare.classifier.defaults import DEFAULT_METHOD
from clare.data.images import Pixels
from clare.data.sources import Dataset, DataSettings, load_dataset
from clare.data.store import LabelledImages
from clare.files import write_json
from clare.model.records import Mode
from clare.version import __version__

SEED = 0
NUM_STRANGERS = 100
CLASSES_PER_TASK = 10
DRAWINGS_PER_CLASS = 40
CASES: tuple[tuple[int, str, Mode, str], ...] = (
    (10, DEFAULT_METHOD, "learn", "quadratic"),
    (30, DEFAULT_METHOD, "learn", "quadratic"),
    (10, "clare", "learn", "aligned"),
    (30, "clare", "learn", "aligned"),
    (10, "clare", "quick", "aligned"),
    (30, "clare", "quick", "aligned"),
    (30, "clare", "quick", "prototype"),
    (30, "clare", "quick", "discriminant"),
    (30, "clare", "quick", "quadratic"),
)
"""Classes, method, kind of lesson, and head."""


def drawings(images: LabelledImages, label: int) -> list[Pixels]:
    """Return the drawings of a class."""
    canvas, _ = images.batch((images.labels == label).nonzero().squeeze(1))
    return [image[0].numpy() for image in canvas.pixels]


def area_under_curve(known: torch.Tensor, unknown: torch.Tensor) -> float:
    """Return the chance that an unknown drawing scores higher than a known one."""
    higher = (unknown[:, None] > known[None]).double() + 0.5 * (unknown[:, None] == known[None]).double()
    return float(higher.mean())


def certainties(model: Classifier, images: list[Pixels], labels: list[str]) -> dict[str, Any]:
    """Return how sure answers are and how far that is from how often they are right, before and after the fit."""
    guesses = model.guess(images, top=len(model.classes))
    fitted = torch.tensor([[each.probability for each in guess.guesses] for guess in guesses], dtype=torch.float64)
    # The factor on logits is a power of probabilities.
    own = fitted.pow(float(model.parts.method.head.scale) / model.scale)
    is_right = torch.tensor([guess.guesses[0].name == label for guess, label in zip(guesses, labels, strict=True)])
    found = {}
    for name, values in (("own", own / own.sum(1, keepdim=True)), ("fitted", fitted)):
        best = values[:, 0]
        found[name] = {"certainty": float(best.mean()), "calibration_error": calibration_error(best, is_right)}
    return found


def measure(dataset: Dataset, order: list[int], num_classes: int, method: str, mode: Mode, head: str) -> dict[str, Any]:
    """Teach classes task by task, and score test drawings of these and of others."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"head": {"kind": head}}
        model = Classifier(Path(folder) / "model", backbone=None, method=method, settings=settings, device="cpu")
        for start in range(0, num_classes, CLASSES_PER_TASK):
            task = order[start : start + CLASSES_PER_TASK]
            lesson = {dataset.classes[label]: drawings(dataset.train, label)[:DRAWINGS_PER_CLASS] for label in task}
            model.learn(lesson, mode=mode)
        parts = []
        for labels in (order[:num_classes], order[-NUM_STRANGERS:]):
            images = [image for label in labels for image in drawings(dataset.test, label)]
            parts.append(torch.tensor([guess.unknown for guess in model.guess(images, top=1)]))
        known, unknown = parts
        taught = {dataset.classes[label]: drawings(dataset.test, label) for label in order[:num_classes]}
        taught_drawings = (
            [image for images in taught.values() for image in images],
            [name for name, images in taught.items() for _ in images],
        )
        evaluation = model.evaluate(taught)
        return {
            "num_classes": num_classes,
            "method": method,
            "mode": mode,
            "head": model.parts.method.settings.head.kind,
            "threshold": model.threshold,
            "num_known": len(known),
            "num_unknown": len(unknown),
            "known_below": float((known < model.threshold).double().mean()),
            "unknown_above": float((unknown >= model.threshold).double().mean()),
            "area_under_curve": area_under_curve(known, unknown),
            "accuracy": evaluation.accuracy,
            "probabilities": certainties(model, *taught_drawings),
            "calibration": model.calibration,
        }


def main() -> None:
    """Write results/unknown_score.json, or the file that is named."""
    dataset = load_dataset(DataSettings(dataset="quickdraw", channels=1))
    order = np.random.RandomState(SEED).permutation(len(dataset.classes)).tolist()
    models = [measure(dataset, order, *case) for case in CASES]
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
