"""Compare heads of statistics on kept features: how many test pictures they name, and how many numbers they keep.

python scripts/default_features.py ...                      first, for the features
python scripts/measure_heads.py DRAWINGS CUB                their files; writes results/heads.json
"""

import platform
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from default_features import Features, load
from measure_lessons import commit

from clare.classifier.defaults import OTHER_STATISTICS
from clare.files import write_json
from clare.heads.quadratic import QuadraticHead
from clare.methods.base import MethodSettings
from clare.settings import build_settings
from clare.version import __version__

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "heads.json"
SEED = 0
LESSONS = 5
HEADS: dict[str, dict[str, Any]] = {
    "gaussian (default)": {"kind": "gaussian"},
    "gaussian, 16 directions": {"kind": "gaussian", "num_directions": 16},
    "quadratic, auto, 16 directions": OTHER_STATISTICS,
}
CASES = (
    ("drawings", 100, 40, 8),
    ("drawings", 100, 40, 24),
    ("cub200", 50, 40, 8),
    ("cub200", 50, 40, 24),
)
"""Features, first class, classes, and pictures of a class; settings were chosen on the classes before these."""


def taught(kind: dict[str, Any], features: torch.Tensor, labels: torch.Tensor, num_lessons: int) -> QuadraticHead:
    """Teach a head classes in lessons of equal size."""
    head = build_settings(MethodSettings, {"head": kind}, "").head.make(features.shape[1], SEED)
    assert isinstance(head, QuadraticHead)
    size = (int(labels.max()) + 1) // num_lessons
    for start in range(0, size * num_lessons, size):
        own = (labels >= start) & (labels < start + size)
        steps = head.finish(size)
        next(steps)
        answer = {"values": head.seen(features[own]), "labels": labels[own] - start}
        # A head solves as often as it has to.
        with suppress(StopIteration):
            while True:
                answer = steps.send(answer).function()  # type: ignore[union-attr]
    return head


def lesson(found: Features, first: int, number: int, each: int) -> tuple[torch.Tensor, ...]:
    """Return some pictures of some classes, and all test pictures of these."""
    generator = torch.Generator().manual_seed(SEED)
    chosen = []
    for label in range(first, first + number):
        own = (found.train_labels == label).nonzero().squeeze(1)
        chosen.append(own[torch.randperm(len(own), generator=generator)][:each])
    places = torch.cat(chosen)
    asked = (found.test_labels >= first) & (found.test_labels < first + number)
    return found.train[places], found.train_labels[places] - first, found.test[asked], found.test_labels[asked] - first


@torch.no_grad()
def measure(files: dict[str, Features], case: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    """Compare the heads on one set."""
    name, first, number, each = case
    features, labels, asked, truth = lesson(files[name], first, number, each)
    lines = []
    for head_name, kind in HEADS.items():
        # Sums do not depend on lessons; a square matrix takes long to solve, so that it is solved once.
        num_lessons = LESSONS if kind["kind"] == "gaussian" else 1
        started = time.perf_counter()
        head = taught(kind, features, labels, num_lessons)
        seconds = time.perf_counter() - started
        right = float((head.logits(asked).argmax(1) == truth).double().mean())
        kept = head.packed(dict(head.state_dict()))
        line = {"data": name, "first_class": first, "num_classes": number, "pictures_a_class": each, "head": head_name}
        line |= {"accuracy": right, "num_test": len(truth), "shrinkage": head.shrinkage, "own_share": head.own_share}
        lines.append({**line, "num_kept": sum(t.numel() for t in kept.values()), "seconds": round(seconds, 1)})
        print(lines[-1], flush=True)
    return lines


def table(facts: dict[str, Any]) -> str:
    """Return accuracies and numbers kept as a table in Markdown."""
    lines = ["| pictures | " + " | ".join(HEADS) + " |", "| --- |" + " --- |" * len(HEADS)]
    for name, first, number, each in CASES:
        case = {"data": name, "first_class": first, "num_classes": number, "pictures_a_class": each}
        own = {line["head"]: line for line in facts["lines"] if case.items() <= line.items()}
        if own:
            cells = [f"{100 * own[head]['accuracy']:.1f}, {own[head]['num_kept'] / 1e6:.1f}" for head in HEADS]
            lines.append(f"| {name}, {number} classes of {each} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Write results/heads.json."""
    files = {found.facts["data"]: found for found in map(load, map(Path, arguments))}
    keep([line for case in CASES for line in measure(files, case)], files, arguments)


def keep(lines: list[dict[str, Any]], files: dict[str, Features], arguments: Sequence[str]) -> None:
    """Write what was measured, and how."""
    facts = {
        "what": "test pictures named rightly, and numbers kept, of heads of statistics on the default's features",
        "command": "python scripts/measure_heads.py " + " ".join(Path(name).name for name in arguments),
        "features": [dict(found.facts) for found in files.values()],
        "seed": SEED,
        "commit": commit(),
        "device": "CPU, one thread",
        "clare": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "lines": lines,
    }
    write_json(RESULTS, facts)
    print(table(facts))


if __name__ == "__main__":
    main(sys.argv[1:])
