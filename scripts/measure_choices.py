"""What a new model may be: views of every picture or an adapter, on small and larger lessons.

python scripts/measure_choices.py --cifar100 FOLDER --cub200 FOLDER --backbone FILE   writes results/choices.json
python scripts/measure_choices.py --table                                            what is kept, as a table

The folders have train/ and test/, as `measure_lessons.py` takes them; the drawings are the embedded ones. What was
measured already is not measured again.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from measure_lessons import answers, drawings, in_lessons, provenance, share_right, tree

from clare.classifier.classifier import Classifier
from clare.files import write_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "choices.json"
ORDER = 1
CHOICES: dict[str, dict[str, Any]] = {
    "one view": {"settings": {"features": {"views": 1}}},
    "three views": {"settings": {"features": {"views": 3}}},
    "five views": {"settings": {"features": {"views": 5}}},
    "adapter": {"method": "clare-plus"},
}
KEYS = ("data", "num_classes", "num_lessons", "pictures_a_class", "choice")
FROZEN = ("one view", "three views")
Cell = tuple[str, int, int, int, int, tuple[str, ...]]
CELLS: tuple[Cell, ...] = (
    ("drawings", 20, 2, 3, 20, (*FROZEN, "adapter")),
    ("drawings", 20, 2, 10, 20, (*FROZEN, "adapter")),
    ("drawings", 20, 2, 30, 20, (*FROZEN, "adapter")),
    ("drawings", 20, 10, 3, 20, FROZEN),
    ("drawings", 20, 10, 10, 20, FROZEN),
    ("drawings", 20, 10, 30, 20, FROZEN),
    ("cub200", 8, 2, 10, 10, (*FROZEN, "five views", "adapter")),
    ("cub200", 8, 2, 3, 10, FROZEN),
    ("cifar100", 8, 2, 10, 10, FROZEN),
    ("cifar100", 8, 2, 3, 10, FROZEN),
    ("cub200", 8, 2, 30, 10, FROZEN),
    ("cifar100", 8, 2, 30, 10, FROZEN),
    ("cifar100", 16, 2, 10, 30, FROZEN),
    ("cub200", 16, 2, 10, 30, FROZEN),
)
"""Pictures, classes, lessons, pictures of a class to learn from and to ask about, and the choices that are measured."""


def measure(cell: Cell, choice: str, parts: Sequence[dict[str, list[Any]]], backbone: str | None) -> dict[str, Any]:
    """Teach one cell by one choice, and ask about the test pictures of all its classes."""
    data, num_classes, num_lessons, num_train, num_test, _ = cell
    train, test = parts
    lessons = in_lessons(sorted(train), num_classes, num_lessons, ORDER)
    with tempfile.TemporaryDirectory() as folder:
        model = Classifier(
            Path(folder) / "model", backbone=None if data == "drawings" else backbone, device="cpu", **CHOICES[choice]
        )
        # Other programs on the machine cost time by the clock and none of the process.
        started = time.process_time()
        for lesson in lessons:
            model.learn({name: train[name][:num_train] for name in lesson})
        seconds = time.process_time() - started
        found = answers(model, {name: test[name][:num_test] for lesson in lessons for name in lesson})
        num_bytes = sum(path.stat().st_size for path in (Path(folder) / "model").glob("tensors-*"))
        settings = model.parts.method.settings.model_dump(mode="json")
    return {
        "data": data,
        "num_classes": num_classes,
        "num_lessons": num_lessons,
        "pictures_a_class": num_train,
        "choice": choice,
        "num_test": len(found),
        "accuracy": share_right(found, [name for lesson in lessons for name in lesson]),
        "seconds": round(seconds, 1),
        "num_bytes": num_bytes,
        "settings": settings,
    }


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return right answers, seconds and megabytes as a table in Markdown."""
    rows = ["| pictures | " + " | ".join(CHOICES) + " |", "| --- |" + " --- |" * len(CHOICES)]
    for data, num_classes, num_lessons, num_train, _, _ in CELLS:
        cells = []
        for choice in CHOICES:
            case = dict(data=data, num_classes=num_classes, num_lessons=num_lessons, pictures_a_class=num_train)
            case["choice"] = choice
            own = [line for line in lines if case.items() <= line.items()]
            cells += [f"{line['accuracy']:.1f}, {line['seconds']:.0f} s, {line['num_bytes'] / 1e6:.0f}" for line in own]
            cells += ["-"] * (not own)
        title = f"{data}, {num_classes} classes of {num_train} in {num_lessons} lessons"
        rows.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def keep(lines: Sequence[dict[str, Any]]) -> None:
    """Write what was measured so far, and how."""
    facts = {
        "what": "test pictures named rightly after the last lesson, seconds of one core for teaching, bytes of tensors",
        "command": "python scripts/measure_choices.py --cifar100 cifar100 --cub200 cub200 --backbone "
        "vits14_tin200_112.safetensors",
        "order": ORDER,
        "device": f"CPU, one thread ({platform.machine()})",
        **provenance(),
        "lines": list(lines),
    }
    write_json(RESULTS, facts)


def main(arguments: Sequence[str]) -> None:
    """Measure all cells for which there are pictures, or print the table of what is kept."""
    parser = argparse.ArgumentParser(description="Measure what a new model may be.")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--cifar100", type=Path)
    parser.add_argument("--cub200", type=Path)
    parser.add_argument("--backbone")
    given = parser.parse_args(arguments)
    lines: list[dict[str, Any]] = json.loads(RESULTS.read_text())["lines"] if RESULTS.exists() else []
    if not given.table:
        torch.set_num_threads(1)
        folders = {"cifar100": given.cifar100, "cub200": given.cub200}
        read = {name: tree(folder) for name, folder in folders.items() if folder is not None}
        read["drawings"] = drawings()
        done = {tuple(line[key] for key in KEYS) for line in lines}
        for cell in CELLS:
            for choice in cell[5]:
                if cell[0] in read and (*cell[:4], choice) not in done:
                    lines.append(measure(cell, choice, read[cell[0]], given.backbone))
                    print({**lines[-1], "settings": None}, flush=True)
                    keep(lines)
    print(table(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
