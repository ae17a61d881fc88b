"""CLARE beside the methods that have a network for each task, on drawings, each with a rate tuned for it.

    OMP_NUM_THREADS=1 python scripts/measure_sparse_family.py --methods clare hat --seeds 1993 1994 1995 \\
        --precision bf16 --runs FOLDER --out results/sparse_family_20x10.json
    python scripts/measure_sparse_family.py --from results/sparse_family_20x10.json    # writes its table on the page

Every method that has a learning rate gets as many trials as the others, by `clare tune`: on validation images of the
first tasks, around its own or the preset's rate. What is finished stays as it is, each seed is written once it is done,
and several processes may write one file. Settings of all named methods come with `--set`; they are part of their names.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.files import write_json, write_text
from clare.locks import holding
from clare.methods import METHODS
from clare.metrics.summary import summarise
from clare.presets.load import make_experiment
from clare.report.groups import spread
from clare.report.record import read_run, reproduce_command
from clare.runner.tune import tunable_of, tune_command

PRESET, SEED = "quickdraw-20x10", 1993
"""The stream, and the seed of all trials, whichever seeds the runs have."""
FAMILY = ("clare", "packnet", "hat", "wsn", "pgm", "piggyback", "dst", "expert-gate", "sparcl")
PAGE = Path(__file__).parents[1] / "docs" / "sparse_family.md"
COLUMNS = {
    "Accuracy": "final_accuracy",
    "Task given": "final_given",
    "Task right": "task_right",
    "Forgetting": "forgetting",
}


def tuned(method: str, options: argparse.Namespace, settings: Sequence[str], folder: Path) -> dict[str, Any]:
    """Try a method's rates on validation images, and return what each reached and the settings of the best."""
    if not options.trials or not tunable_of(METHODS.get(method)):
        return {"trials": {}, "chosen": []}
    tune_command(Console(), PRESET, [method], options.trials, [*settings], SEED, options.tasks, folder, 1)
    found = json.loads((folder / "tune.json").read_text(encoding="utf-8"))
    # Nothing is chosen where no trial came to its end, which the first run will say again.
    trials = {word: each.get("final_accuracy") for each in found["trials"] for word in words(each["settings"])}
    return {"trials": trials, "chosen": words(found["chosen"].get(method, {}))}


def words(settings: dict[str, Any]) -> list[str]:
    """Return a trial's settings as they are given on the command line."""
    return [f"method.{key}={value:g}" for key, value in settings.items()]


def run(folder: Path, method: str, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    """Run a method or go on with it, and return its figures and where they come from."""
    run_experiment(make_experiment(PRESET, method, settings, seed), folder, Silence())
    record = read_run(folder)
    figures = {name: value for name, value in summarise(record).items() if name not in ("accuracy_matrix", "seconds")}
    last = record.tasks[-1]
    return {
        "command": reproduce_command(record),
        **figures,
        "num_stored": last.num_stored,
        "passes_per_image": last.passes_per_image,
        "num_pictures": last.num_pictures,
        "settings": record.preset["method"],
        "environment": dict(record.environment),
    }


def kept_in(out: Path, what: dict[str, Any]) -> dict[str, Any]:
    """Return what a file of figures holds by now, if it was measured in the same way."""
    kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {**what, "methods": {}}
    others = {name: value for name, value in kept.items() if name != "methods"}
    if others != what:
        raise SystemExit(f"{out} holds figures of {others}, and these are of {what}; choose another --out")
    return kept


def keep(out: Path, what: dict[str, Any], label: str, entry: dict[str, Any], runs: dict[str, Any]) -> None:
    """Add what was measured of a method to the file, which another process may be adding to as well."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with holding(out.with_name(f".{out.name}.lock"), lambda holder: None):
        kept = kept_in(out, what)
        before = kept["methods"].get(label, {"seeds": {}})
        if before["seeds"] and {name: before[name] for name in entry} != entry:
            raise SystemExit(f"{out} holds {label} with other trials; choose another --out or the same --runs")
        kept["methods"][label] = {**entry, "seeds": before["seeds"] | runs}
        write_json(out, kept)


def measure(method: str, options: argparse.Namespace, what: dict[str, Any]) -> None:
    """Choose a method's rate, then run it with every seed, and keep each run's figures once it is done."""
    settings = [f"engine.precision={options.precision}", *options.set]
    label = " ".join([method, *(word.removeprefix("method.") for word in options.set)])
    folder = options.runs / label.replace("/", "_").replace(" ", "_")
    entry = tuned(method, options, settings, folder / "tune")
    for seed in options.seeds:
        found = run(folder / str(seed), method, seed, [*settings, *entry["chosen"]])
        keep(options.out, what, label, entry, {str(seed): found})
        print(label, seed, found["final_accuracy"], flush=True)


def table(methods: dict[str, Any]) -> str:
    """Return the figures as a table of the page: means over seeds and, of several, deviations."""
    lines = [
        f"| Method | {' | '.join(COLUMNS)} | Stored | Passes | Rates tried | Seeds |",
        f"|:---|{'---:|' * (len(COLUMNS) + 4)}",
    ]
    for name, found in methods.items():
        runs = list(found["seeds"].values())
        spreads = [spread([each[key] for each in runs]) for key in COLUMNS.values()]
        shares = [cell(mean, deviation) for mean, deviation in spreads]
        kept = f"; {runs[0]['num_pictures']:,} pictures" if runs[0].get("num_pictures") else ""
        costs = [f"{runs[0]['num_stored']:,}{kept}", str(runs[0]["passes_per_image"])]
        lines.append(f"| {' | '.join([name, *shares, *costs, str(len(found['trials']) or '-'), str(len(runs))])} |")
    return "\n".join(lines) + "\n"


def cell(mean: float | None, deviation: float | None) -> str:
    """Return a share in percent, with its deviation where there is one."""
    if mean is None:
        return "-"
    return f"{100 * mean:.1f}" if deviation is None else f"{100 * mean:.1f} ± {100 * deviation:.1f}"


def written(page: str, name: str, methods: dict[str, Any]) -> str:
    """Return the page with the table of these figures between the marks of their file."""
    start, end = marks(name)
    before, rest = page.split(start)
    return before + start + table(methods) + end + rest.split(end)[1]


def marks(name: str) -> tuple[str, str]:
    """Return what stands before and after the table of a file of figures."""
    return f"<!-- {name}:start -->\n", f"<!-- {name}:end -->"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the named methods, or write the page's table from what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=FAMILY, help="the methods of this process")
    parser.add_argument("--seeds", nargs="+", type=int, default=[SEED], help="seeds of the runs")
    parser.add_argument("--trials", type=int, default=7, help="rates tried for each method; 0 takes the preset's")
    parser.add_argument("--tasks", type=int, default=8, help="first tasks whose validation images judge the trials")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto", help="engine.precision")
    parser.add_argument("--set", action="append", default=[], help="a setting of the named methods: key=value")
    parser.add_argument("--runs", type=Path, help="where runs are, or are to be")
    parser.add_argument("--out", type=Path, help="the file of figures that is written or added to")
    parser.add_argument("--from", dest="source", type=Path, help="figures that were measured before")
    options = parser.parse_args(arguments)
    if options.source:
        methods = json.loads(options.source.read_text(encoding="utf-8"))["methods"]
        write_text(PAGE, written(PAGE.read_text(encoding="utf-8"), options.source.stem, methods))
        return
    if options.runs is None or options.out is None:
        parser.error("give --runs and --out, or --from with figures that were measured before")
    what = {"preset": PRESET, "precision": options.precision, "trials": options.trials, "trial_tasks": options.tasks}
    kept_in(options.out, what)
    for method in options.methods:
        measure(method, options, what)


if __name__ == "__main__":
    main()
