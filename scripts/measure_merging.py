"""Measure models of the drawings that were taught in parts and merged, beside one that was taught with all pictures."""

import platform
import sys
from pathlib import Path
from typing import Any

import torch
from measure_lessons import commit
from measure_unknown import drawings

from clare.classifier.classifier import Classifier
from clare.classifier.defaults import DRAWINGS, OTHER_STATISTICS
from clare.classifier.pictures import Pictures
from clare.data.sources import DataSettings, load_dataset
from clare.files import write_json
from clare.version import __version__

SEED = 0
NUM_CLASSES, NUM_PARTS, PER_CLASS, NUM_HELD, NUM_TEST = 40, 4, 32, 8, 20
"""Classes, models, drawings of a class that are taught in all, held back of these, and asked about."""
DEFAULT: dict[str, Any] = DRAWINGS["linear"]["head"]
HEADS: dict[str, dict[str, Any]] = {
    f"{DEFAULT['kind']} (default)": DEFAULT,
    "quadratic, 16 directions": OTHER_STATISTICS,
    "quadratic, 4 directions": {**OTHER_STATISTICS, "num_directions": 4},
    "discriminant": {"kind": "discriminant", "shrinkage": "auto"},
    "ridge": {"kind": "ridge"},
    "prototype": {"kind": "prototype"},
}


def make(head: dict[str, Any]) -> Classifier:
    """Make a model of the drawing backbone."""
    return Classifier(method="linear", settings={"head": head}, seed=SEED, device="cpu")


def lesson(images: dict[str, list[Any]], chosen: slice) -> Pictures:
    """Return some drawings of each class, a fourth of which are held back."""
    found = {name: [image[None] for image in own[chosen]] for name, own in images.items()}
    num_held = {name: len(own) * NUM_HELD // PER_CLASS for name, own in found.items()}
    return Pictures(
        {name: own[num_held[name] :] for name, own in found.items()},
        {name: own[: num_held[name]] for name, own in found.items()},
    )


def compare(head: dict[str, Any], lessons: list[Pictures], whole: Pictures, test: Any) -> dict[str, Any]:
    """Return how a merged model answers, and how far from one that was taught with all."""
    one = make(head)
    one.learn(whole)
    models = [make(head) for _ in lessons]
    for model, own in zip(models, lessons, strict=True):
        model.learn(own)
    for model in models[1:]:
        models[0].merge(model)
    images, labels = test
    said, exact = (torch.from_numpy(model.predict_proba(images)) for model in (models[0], one))
    place = [models[0].classes_.tolist().index(name) for name in one.classes_.tolist()]
    said = said[:, place]
    truth = torch.tensor([one.classes_.tolist().index(label) for label in labels])
    return {
        "merged_accuracy": float((said.argmax(1) == truth).double().mean()),
        "whole_accuracy": float((exact.argmax(1) == truth).double().mean()),
        "other_answers": int((said.argmax(1) != exact.argmax(1)).sum()),
        "largest_difference": float((said - exact).abs().max()),
    }


def measure(out: Path) -> None:
    """Merge models with shared and with own classes, under every head."""
    data = load_dataset(DataSettings(dataset="quickdraw", channels=1))
    names = data.classes[:NUM_CLASSES]
    train = {name: drawings(data.train, place)[:PER_CLASS] for place, name in enumerate(names)}
    asked = {name: drawings(data.test, place)[:NUM_TEST] for place, name in enumerate(names)}
    test = ([image for own in asked.values() for image in own], [name for name in asked for _ in asked[name]])
    step, share = NUM_CLASSES // NUM_PARTS, PER_CLASS // NUM_PARTS
    ways = {
        "own classes": [
            lesson({name: train[name] for name in names[part * step : (part + 1) * step]}, slice(None))
            for part in range(NUM_PARTS)
        ],
        "shared classes": [lesson(train, slice(part * share, (part + 1) * share)) for part in range(NUM_PARTS)],
    }
    found = []
    for way, lessons in ways.items():
        whole = Pictures(
            *(
                {name: [image for own in lessons for image in getattr(own, part).get(name, [])] for name in names}
                for part in ("train", "held_back")
            )
        )
        for label, head in HEADS.items():
            found.append({"classes": way, "head": label, "settings": head, **compare(head, lessons, whole, test)})
            print(found[-1], flush=True)
    facts = {
        "command": "python scripts/measure_merging.py",
        "data": f"quickdraw, {NUM_CLASSES} classes, {PER_CLASS} drawings a class in {NUM_PARTS} models, "
        f"{NUM_TEST} a class asked about",
        "seed": SEED,
        "device": "cpu",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "clare": __version__,
        "commit": commit(),
    }
    write_json(out, {**facts, "measured": found})


if __name__ == "__main__":
    measure(Path(sys.argv[1] if len(sys.argv) > 1 else "results/merging.json"))
