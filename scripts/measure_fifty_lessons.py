"""Teach the same pictures in 2, 10 and 50 lessons, by the default and by `--quick`, on kept features.

python scripts/default_features.py ...                              first, for the features
python scripts/measure_fifty_lessons.py DRAWINGS CUB CIFAR          writes results/fifty_lessons.json
python scripts/measure_fifty_lessons.py --table                     what is kept, as a table

A fifth of the pictures is held back, as `clare learn` does. Seconds are those of the head alone: what it takes to see
pictures does not depend on lessons. What was measured already is not measured again.
"""

import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from default_features import Features, load
from measure_heads import SEED, lesson, taught
from measure_lessons import provenance

from clare.files import write_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "fifty_lessons.json"
HEAD = {"kind": "gaussian"}
VIEWS = {"default, three views": "", "--quick, one view": "_whole"}
LESSONS = (2, 10, 50)
NUM_CLASSES, FIRST, SIZES = 50, {"drawings": 100, "cub200": 50, "cifar100": 50}, (3, 10, 30)
"""Classes that no setting was chosen on, from the first of them; pictures of each to learn from."""
HELD_SHARE, LEAST_HELD = 5, 5


def kept_back(labels: torch.Tensor) -> torch.Tensor:
    """Tell which pictures are held back: a fifth of each class that has enough."""
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(int(labels.max()) + 1):
        own = (labels == label).nonzero().squeeze(1)
        held[own[: len(own) // HELD_SHARE if len(own) >= LEAST_HELD else 0]] = True
    return held


@torch.no_grad()
def measure(found: Features, data: str, each: int, num_lessons: int) -> dict[str, Any]:
    """Teach one head and ask about the test pictures of all its classes."""
    features, labels, asked, truth = lesson(found, FIRST[data], NUM_CLASSES, each)
    held = kept_back(labels)
    started = time.process_time()
    head = taught(HEAD, features[~held], labels[~held], num_lessons)
    seconds = time.process_time() - started
    right = float((head.logits(asked).argmax(1) == truth).double().mean())
    kept = head.packed(dict(head.state_dict()))
    return {
        "data": data,
        "pictures_a_class": each,
        "num_lessons": num_lessons,
        "num_test": len(truth),
        "accuracy": round(100 * right, 2),
        "seconds_of_head": round(seconds, 1),
        "num_bytes": sum(tensor.numel() * tensor.element_size() for tensor in kept.values()),
    }


def table(facts: dict[str, Any]) -> str:
    """Return right answers, seconds and megabytes as a table in Markdown."""
    lines: list[dict[str, Any]] = facts["lines"]
    rows = ["| pictures | what is chosen | 2 lessons | 10 lessons | 50 lessons |", "| --- |" + " --- |" * 4]
    for data in FIRST:
        for each in SIZES:
            for choice in dict.fromkeys(line["choice"] for line in lines if line["data"] == data):
                case = {"data": data, "pictures_a_class": each, "choice": choice}
                own = {line["num_lessons"]: line for line in lines if case.items() <= line.items()}
                cells = [
                    f"{own[number]['accuracy']:.1f}, {own[number]['seconds_of_head']:.0f} s, "
                    f"{own[number]['num_bytes'] / 1e6:.0f}"
                    if number in own
                    else "-"
                    for number in LESSONS
                ]
                rows.append(f"| {data}, {NUM_CLASSES} classes of {each} | {choice} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def keep(lines: Sequence[dict[str, Any]], features: Sequence[Any], names: Sequence[str]) -> None:
    """Write what was measured so far, and how."""
    facts = {
        "what": "test pictures named rightly (%) after the last lesson, seconds of one core and bytes of the head",
        "command": "python scripts/measure_fifty_lessons.py " + " ".join(names),
        "num_classes": NUM_CLASSES,
        "features": list(features),
        "seed": SEED,
        "device": f"CPU, one thread ({platform.machine()})",
        **provenance(),
        "lines": list(lines),
    }
    write_json(RESULTS, facts)


def main(arguments: Sequence[str]) -> None:
    """Measure what is missing for the features that are given, or print the table of what is kept."""
    facts = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"lines": [], "features": []}
    lines: list[dict[str, Any]] = facts["lines"]
    if list(arguments) == ["--table"]:
        print(table(facts))
        return
    torch.set_num_threads(1)
    keys = ("data", "pictures_a_class", "num_lessons", "choice")
    done = {tuple(line[key] for key in keys) for line in lines}
    read = []
    for path in map(Path, arguments):
        is_drawn = load(path).facts["data"] == "drawings"
        choices = {"default, one view": ""} if is_drawn else VIEWS
        read += [(choice, load(path, views)) for choice, views in choices.items()]
    features = list({found.facts["data"]: dict(found.facts) for _, found in read}.values())
    for num_lessons in LESSONS:
        for each in SIZES:
            for choice, found in read:
                data = found.facts["data"]
                if (data, each, num_lessons, choice) not in done:
                    lines.append({**measure(found, data, each, num_lessons), "choice": choice})
                    print(lines[-1], flush=True)
                    keep(lines, features, [Path(name).name for name in arguments])
    print(table(facts))


if __name__ == "__main__":
    main(sys.argv[1:])
