"""Teach classes in several lessons as `clare learn` does, by its default and by the other choices it has.

python scripts/measure_lessons.py --drawings                          the embedded drawings, dark ink on white
python scripts/measure_lessons.py --pictures FOLDER --backbone FILE   a folder with train/ and test/
python scripts/measure_lessons.py --table                             what is kept below results/lessons/, as a table

Each choice and order is one JSON. After every lesson the test pictures of all classes so far are named; what a lesson
costs earlier classes is told twice, against all classes and among the earlier ones alone: more names to choose from
make the question harder, which is no forgetting.
"""

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from clare.classifier.classifier import Classifier
from clare.data.folders import image_paths, subfolders
from clare.data.settings import DataSettings
from clare.data.sources import load_dataset
from clare.engine.ranks import Ranks
from clare.engine.run import environment
from clare.engine.settings import EngineSettings
from clare.errors import DataError
from clare.files import write_json
from clare.model.records import Mode
from clare.presets.load import find_backbone, parse_override
from clare.seeds import generator_at
from clare.settings import merge
from clare.version import __version__

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "lessons"
CHOICES: dict[str, dict[str, Any]] = {
    "default": {},
    "quadratic": {"settings": {"head": {"kind": "quadratic"}}},
    "clare": {"method": "clare"},
    "clare, quick": {"method": "clare", "mode": "quick"},
    "clare-plus": {"method": "clare-plus"},
}
FROZEN = ("default", "quadratic")
"""Choices of which it is told what a lesson costs."""
Examples = dict[str, list[Any]]


def drawings() -> tuple[Examples, Examples]:
    """Return training and test drawings by class, as negatives: dark ink on white."""
    data = load_dataset(DataSettings(dataset="quickdraw"))

    def by_class(images: Any) -> Examples:
        found: Examples = {name: [] for name in data.classes}
        for index, label in zip(images.indices.tolist(), images.labels.tolist(), strict=True):
            pixels = images.store.batch(torch.tensor([index])).pixels[0]
            found[data.classes[label]].append(255 - pixels.permute(1, 2, 0).squeeze(2).numpy().astype(np.uint8))
        return found

    return by_class(data.train), by_class(data.test)


def tree(folder: Path) -> tuple[Examples, Examples]:
    """Return the files of a folder with train/ and test/, by class."""
    parts = [{name: list(image_paths(folder / part / name)) for name in names(folder, part)} for part in PARTS]
    return cast(tuple[Examples, Examples], tuple(parts))


PARTS = ("train", "test")


def names(folder: Path, part: str) -> list[str]:
    """Return the class folders of a part."""
    if not (folder / part).is_dir():
        raise DataError(f"{folder} has no folder {part}/; give one with train/ and test/")
    return subfolders(folder / part)


def in_lessons(classes: Sequence[str], num_classes: int, num_lessons: int, order: int) -> list[list[str]]:
    """Draw classes and deal them out to lessons of equal size."""
    drawn = torch.randperm(len(classes), generator=generator_at(order, "lessons"))[:num_classes].tolist()
    size = num_classes // num_lessons
    return [[classes[place] for place in drawn[start : start + size]] for start in range(0, size * num_lessons, size)]


def answers(model: Classifier, tests: Mapping[str, Sequence[Any]]) -> list[tuple[str, list[str]]]:
    """Return for each test picture its class, and all known classes from the likeliest to the least."""
    reader = model.reader()
    images = [(name, reader.image(image)) for name in tests for image in tests[name]]
    guesses = model.guess_pixels([name for name, _ in images], [image for _, image in images], top=len(model.classes))
    return [(name, [each.name for each in guess.guesses]) for (name, _), guess in zip(images, guesses, strict=True)]


def share_right(found: Sequence[tuple[str, list[str]]], of: Sequence[str], among: Sequence[str] | None = None) -> float:
    """Return in percent how many pictures of some classes are named rightly, if only these names can be given."""
    allowed = None if among is None else set(among)
    own = [(name, next(guess for guess in given if allowed is None or guess in allowed)) for name, given in found]
    right = [name == guess for name, guess in own if name in set(of)]
    return round(100 * sum(right) / len(right), 2)


def teach(choice: Mapping[str, Any], given: argparse.Namespace, lessons: list[list[str]]) -> dict[str, Any]:
    """Teach the lessons and return what was measured after each."""
    train, test = drawings() if given.drawings else tree(given.pictures)
    settings: dict[str, Any] = choice.get("settings", {})
    for override in given.set:
        settings = merge(settings, parse_override(override))
    backbone = find_backbone(None if given.backbone is None else str(given.backbone))
    after: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        kind = {key: choice[key] for key in ("method",) if key in choice}
        model = Classifier(Path(folder) / "model", backbone=backbone, settings=settings, device=given.device, **kind)
        known: list[str] = []
        for lesson in lessons:
            started = time.perf_counter()
            change = model.learn({name: train[name] for name in lesson}, mode=cast(Mode, choice.get("mode", "learn")))
            seconds = time.perf_counter() - started
            earlier, known = known, [*known, *lesson]
            found = answers(model, {name: test[name] for name in known})
            kept = [report for report in model.reports.values() if report.num_held_back]
            values = {
                "accuracy": share_right(found, known),
                "new": share_right(found, lesson),
                "earlier": share_right(found, earlier) if earlier else None,
                "earlier_among_themselves": share_right(found, earlier, earlier) if earlier else None,
                "held_back": round(100 * sum(r.num_correct for r in kept) / sum(r.num_held_back for r in kept), 2),
                "num_fallen": len(change.report["fallen"]),
                "seconds": round(seconds, 2),
            }
            after.append(values)
            print(json.dumps({"choice": given.choice, "order": given.order, **values}), flush=True)
        num_bytes = sum(path.stat().st_size for path in (Path(folder) / "model").glob("tensors-*"))
        facts = {"method": model.parts.method.name, "settings": model.parts.method.settings.model_dump(mode="json")}
        facts |= {
            "transforms": model.parts.transforms.model_dump(mode="json"),
            "backbone_hash": model.parts.backbone.fingerprint,
        }
    return {**facts, "num_bytes": num_bytes, "after": after, **falls(after)}


def falls(after: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the greatest fall of earlier classes in a lesson, against all classes and among themselves, in points."""
    pairs = list(pairwise(after))
    return {
        "greatest_fall": round(max(old["accuracy"] - new["earlier"] for old, new in pairs), 2),
        "greatest_fall_among_themselves": round(
            max(old["accuracy"] - new["earlier_among_themselves"] for old, new in pairs), 2
        ),
    }


def provenance() -> dict[str, Any]:
    """Return the commit and the versions behind a measurement."""
    versions = {"clare": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return {"commit": commit(), **versions}


def commit() -> str | None:
    """Return the commit of the source, with a mark where it was changed since."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None


def table() -> str:
    """Return what is kept as a table in Markdown, a line for each set, its orders together."""
    runs = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json"))]
    sets = sorted({(run["data"], run["num_lessons"]) for run in runs})
    lines = [
        "| pictures | " + " | ".join(CHOICES) + " | lost, all names | lost, earlier names |",
        "| --- |" + " --- |" * (len(CHOICES) + 2),
    ]
    for data, num_lessons in sets:
        own = [run for run in runs if run["data"] == data]
        cells = []
        for choice in CHOICES:
            last = [run["after"][-1]["accuracy"] for run in own if run["choice"] == choice]
            cells.append(f"{sum(last) / len(last):.1f}" if last else "-")
        ours = [run for run in own if run["choice"] in FROZEN]
        cells += [f"{max(run[key] for run in ours):.1f}" for key in ("greatest_fall", "greatest_fall_among_themselves")]
        orders = len({run["order"] for run in own})
        title = f"{data}, {own[0]['num_classes']} classes in {num_lessons} lessons"
        lines.append(f"| {title}{f', {orders} orders' if orders > 1 else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure lessons as clare learn gives them.")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--drawings", action="store_true")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--name", help="What the pictures are called; the folder's name when left out.")
    parser.add_argument("--backbone", type=Path)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--lessons", type=int, default=4)
    parser.add_argument("--order", type=int, default=1)
    parser.add_argument("--choice", choices=CHOICES, default="default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=KEPT)
    given = parser.parse_args(arguments)
    if not given.table and given.drawings == (given.pictures is not None):
        parser.error("give either --drawings or --pictures FOLDER")
    return given


def main(arguments: Sequence[str]) -> None:
    """Measure one choice, or print the table of what is kept."""
    given = parse(arguments)
    if given.table:
        print(table())
        return
    data = given.name or ("drawings" if given.drawings else given.pictures.name)
    every = drawings()[0] if given.drawings else tree(given.pictures)[0]
    lessons = in_lessons(sorted(every), given.classes, given.lessons, given.order)
    measured = teach(CHOICES[given.choice], given, lessons)
    ranks = Ranks(EngineSettings.model_validate({"device": given.device}))
    result = {
        "data": data,
        "num_classes": given.classes,
        "num_lessons": given.lessons,
        "order": given.order,
        "choice": given.choice,
        "classes": lessons,
        **measured,
        "commit": commit(),
        "environment": environment(ranks),
        "command": "python scripts/measure_lessons.py " + shlex.join(typed(given)),
    }
    label = "-".join([data, given.choice.replace(", ", "-"), str(given.order)])
    write_json(given.out / f"{label}.json", result)


def typed(given: argparse.Namespace) -> list[str]:
    """Return what to type to measure this again; folders go by their names."""
    words = ["--drawings"] if given.drawings else ["--pictures", given.pictures.name, "--backbone", given.backbone.name]
    for key in ("classes", "lessons", "order", "choice"):
        words += [f"--{key}", str(getattr(given, key))]
    return [*words, *(word for override in given.set for word in ("--set", override))]


if __name__ == "__main__":
    main(sys.argv[1:])
