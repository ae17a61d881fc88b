"""CLARE beside the methods that have a network for each task, on the first tasks of the embedded drawings.

    OMP_NUM_THREADS=1 python scripts/measure_sparse_family.py --runs FOLDER --out results/sparse_family.json
    python scripts/measure_sparse_family.py --from results/sparse_family.json    # writes the table of the page alone

Each method has its defaults and the preset's head and epochs. Those that SGD trains and for which the preset has no
tuned rate get the best of two, by the accuracy on validation images of the first task. What is finished stays as it is.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.files import write_json, write_text
from clare.metrics.summary import summarise
from clare.presets.load import make_experiment
from clare.report.record import read_run, reproduce_command

PRESET, SEED = "quickdraw", 1993
STREAM = "stream.num_classes=30"
TRIAL = ("stream.num_classes=10", "stream.evaluate_on=validation")
RATES: dict[str, tuple[float, ...]] = {
    "clare": (),
    "packnet": (0.02, 0.1),
    "hat": (0.02, 0.1),
    "wsn": (),
    "piggyback": (),
    "dst": (),
    "expert-gate": (0.02, 0.1),
}
PAGE = Path(__file__).parents[1] / "docs" / "sparse_family.md"
START, END = "<!-- figures:start -->\n", "<!-- figures:end -->"
COLUMNS = {
    "Accuracy": "final_accuracy",
    "Task given": "final_given",
    "Task right": "task_right",
    "Forgetting": "forgetting",
}


def run(folder: Path, method: str, *settings: str) -> dict[str, Any]:
    """Run a method or go on with it, and return its figures and where they come from."""
    run_experiment(make_experiment(PRESET, method, settings, SEED), folder, Silence())
    record = read_run(folder)
    figures = {name: value for name, value in summarise(record).items() if name not in ("accuracy_matrix", "seconds")}
    last = record.tasks[-1]
    return {
        "command": reproduce_command(record),
        **figures,
        "num_stored": last.num_stored,
        "passes_per_image": last.passes_per_image,
        "settings": record.preset["method"],
        "environment": dict(record.environment),
    }


def measure(method: str, runs: Path) -> dict[str, Any]:
    """Choose a rate if the preset has none, and run the method with it."""
    trials = {}
    for rate in RATES[method]:
        setting = f"method.learning_rate={rate:g}"
        found = run(runs / f"{method}-{rate:g}", method, *TRIAL, setting)
        trials[setting] = found["final_accuracy"]
    chosen = [max(trials, key=lambda setting: trials[setting])] if trials else []
    return {"trials": trials, **run(runs / method, method, STREAM, *chosen)}


def table(methods: dict[str, Any]) -> str:
    """Return the figures as a table of the page."""
    lines = [
        f"| Method | {' | '.join(COLUMNS)} | Stored | Passes | Rates tried |",
        f"|:---|{'---:|' * (len(COLUMNS) + 3)}",
    ]
    for name, found in methods.items():
        shares = [f"{100 * found[key]:.1f}" for key in COLUMNS.values()]
        costs = [f"{found['num_stored']:,}", str(found["passes_per_image"]), str(len(found["trials"]) or "-")]
        lines.append(f"| {name} | {' | '.join([*shares, *costs])} |")
    return "\n".join(lines) + "\n"


def written(page: str, methods: dict[str, Any]) -> str:
    """Return the page with the table of these figures."""
    before, rest = page.split(START)
    return before + START + table(methods) + END + rest.split(END)[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all methods, or take what was measured, and write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="where runs are, or are to be")
    parser.add_argument("--out", type=Path, help="the file of figures that is written")
    parser.add_argument("--from", dest="source", type=Path, help="figures that were measured before")
    options = parser.parse_args(arguments)
    if options.source:
        methods = json.loads(options.source.read_text(encoding="utf-8"))["methods"]
    else:
        methods = {}
        for name in RATES:
            methods[name] = measure(name, options.runs)
            print(name, methods[name]["final_accuracy"], flush=True)
            what = {"preset": PRESET, "seed": SEED, "stream": STREAM, "trials_on": list(TRIAL)}
            write_json(options.out, {**what, "methods": methods})
    write_text(PAGE, written(PAGE.read_text(encoding="utf-8"), methods))


if __name__ == "__main__":
    main()
