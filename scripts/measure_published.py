"""What it is worth to do as a method's authors' code does where that and its paper differ (`method.as_published`).

    OMP_NUM_THREADS=1 python scripts/measure_published.py [--methods ssiat,care] [--seeds 1993]

Each method learns the first forty classes of drawings in four tasks, with its own head, both ways. Few drawings of each
class and few epochs: the differences are those of this stream, and accuracies say nothing of the methods.
Written to results/as_published.json; methods that are measured again replace what it holds of them.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clare.engine.commit import source_commit
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.files import write_json
from clare.metrics.summary import summarise
from clare.presets.load import make_experiment
from clare.report.groups import intervals_of
from clare.report.record import RunRecord, read_run

OUT = Path(__file__).parents[1] / "results" / "as_published.json"
PRESET = "quickdraw"
STREAM = ("stream.num_classes=40", "stream.train_per_class=20", "engine.threads=1", "method.epochs=5")
REALIGNED = ("method.head.kind=realigned", "method.head.align_epochs=10", "method.head.align_samples=64")
METHODS: dict[str, tuple[str, ...]] = {
    "ssiat": ("method.first_epochs=5", *REALIGNED),
    "moal": ("method.head.num_projected=1000",),
    "loda": ("method.head.kind=trained",),
    "care": REALIGNED[1:],
    "tuna": REALIGNED[1:],
    "min": ("method.first_epochs=5", "method.head.num_projected=2500"),
    "mos": REALIGNED[1:],
}
"""What differs from the preset, method by method: its own head, and less of what takes long."""


def ended(method: str, as_published: bool, seed: int, folder: Path) -> RunRecord:
    """Run a method over the stream."""
    chosen = [*STREAM, *METHODS[method], f"method.as_published={str(as_published).lower()}"]
    run_experiment(make_experiment(PRESET, method, chosen, seed), folder, Silence())
    return read_run(folder)


def compared(method: str, seeds: list[int]) -> dict[str, Any]:
    """Return what a method reaches both ways, and the difference with an interval over the test drawings."""
    with tempfile.TemporaryDirectory() as name:
        runs = {
            way: [ended(method, way, seed, Path(name) / f"{way}-{seed}") for seed in seeds] for way in (True, False)
        }
        interval = intervals_of(list(zip(*runs.values(), strict=True)), ["final_accuracy"])["final_accuracy"]
    finals = {way: [percent(summarise(run)["final_accuracy"]) for run in found] for way, found in runs.items()}
    return {
        "settings": list(METHODS[method]),
        "seeds": seeds,
        "commit": source_commit(),
        "environment": dict(runs[True][0].environment),
        "as_published": finals[True],
        "as_the_paper_says": finals[False],
        "as_published_minus_paper": {key: percent(value) for key, value in asdict(interval).items()},
    }


def percent(value: float | None) -> float | None:
    """Return a share in percent."""
    return None if value is None else round(100 * value, 2)


def main() -> None:
    """Measure some methods, and write each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="1993")
    given = parser.parse_args(sys.argv[1:])
    seeds = [int(seed) for seed in given.seeds.split(",")]
    for method in given.methods.split(","):
        found = json.loads(OUT.read_bytes())["found"] if OUT.exists() else {}
        found[method] = compared(method, seeds)
        print(method, {key: value for key, value in found[method].items() if key.startswith("as_")}, flush=True)
        facts = {"command": "python scripts/measure_published.py", "preset": PRESET, "overrides": list(STREAM)}
        write_json(OUT, facts | {"found": dict(sorted(found.items()))})


if __name__ == "__main__":
    main()
