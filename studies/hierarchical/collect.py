"""Put a backbone's runs, what they differ by and its pretraining into one file, and all files into the page's table.

python studies/hierarchical/collect.py convnext --runs RUNS --tuned TRIALS --weights convnext.safetensors
python studies/hierarchical/collect.py    # the table alone
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clare.errors import ClareError
from clare.files import write_json, write_text
from clare.report.groups import Spread, Standing, rank
from clare.report.record import find_runs, reproduce_command
from clare.report.standings import rounded

HOME = Path(__file__).parent
NAMES = ("convnext", "swin")
START, END = "<!-- figures:start -->\n", "<!-- figures:end -->"
OWN = ("name", "command", "overrides", "weights")
"""What of a preset differs from run to run or names a file of the machine."""


def collect(runs: Path, tuned: Path, weights: Path) -> dict[str, Any]:
    """Return figures over seeds, differences to CLARE, settings, commands and versions, and what came before."""
    standings = [each for standings in rank(find_runs([runs])).values() for each in standings]
    first = standings[0].run
    return {
        "preset": first.preset["name"],
        "evaluate_on": first.preset["stream"]["evaluate_on"],
        "backbone_hash": first.start.backbone_hash,
        "backbone": {key: value for key, value in first.preset["backbone"].items() if key not in OWN},
        "tuning": json.loads((tuned / "tune.json").read_text()),
        "pretraining": json.loads(weights.with_suffix(".json").read_text()),
        "environment": dict(first.environment),
        "methods": {each.group.method: facts(each) for each in standings},
    }


def facts(standing: Standing) -> dict[str, Any]:
    """Return what is kept of a method's runs."""
    group = standing.group
    found = {
        "seeds": group.seeds,
        "commands": [reproduce_command(run) for run in group.counted],
        "figures": {name: [rounded(number) for number in spread] for name, spread in group.figures.items()},
        "accuracy_given": [rounded(number) for number in group.spread_of("final_given")],
        "costs": group.costs,
        "seconds": round(group.seconds, 1),
        "settings": standing.run.preset["method"],
    }
    if standing.intervals:
        gap = standing.intervals["final_accuracy"]
        found["difference_to_clare"] = [rounded(number) for number in (gap.difference, gap.low, gap.high)]
    return found


def table(name: str, found: dict[str, Any]) -> list[str]:
    """Return one backbone's figures as lines of the page."""
    recipe = found["pretraining"]
    lines = [
        f"**{name}**, pretrained for {recipe['settings']['epochs']} epochs: names {recipe['test_accuracy']:.1%} of "
        f"held-back drawings of its {recipe['num_classes']} classes",
        "",
        "| Method | Seeds | Average | Final | Final less clare's | Forgetting | Task given |",
        "|:---|---:|---:|---:|---:|---:|---:|",
    ]
    for method, facts in found["methods"].items():
        figures = {
            key: told(Spread(*facts["figures"][key])) for key in ("average_accuracy", "final_accuracy", "forgetting")
        }
        gap = facts.get("difference_to_clare")
        less = "" if gap is None else "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * number for number in gap))
        cells = [figures["average_accuracy"], figures["final_accuracy"], less, figures["forgetting"]]
        given = told(Spread(*facts["accuracy_given"]))
        lines.append(f"| {method} | {len(facts['seeds'])} | {' | '.join(cells)} | {given} |")
    return [*lines, ""]


def told(spread: Spread) -> str:
    """Return a mean in percent, with its deviation where there are several seeds."""
    if spread.mean is None:
        return "-"
    return f"{100 * spread.mean:.1f}" + ("" if spread.deviation is None else f" ± {100 * spread.deviation:.1f}")


def write_table() -> None:
    """Write the tables of all results into the page."""
    files = [HOME / "results" / f"{name}.json" for name in NAMES]
    lines = [line for file in files if file.exists() for line in table(file.stem, json.loads(file.read_text()))]
    page = HOME / "README.md"
    before, _, rest = page.read_text().partition(START)
    write_text(page, before + START + "\n".join(lines).rstrip() + "\n" + END + rest.partition(END)[2])


def main(words: Sequence[str]) -> str | None:
    """Collect what the command line names, write the table, and return why not where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=NAMES)
    parser.add_argument("--runs", type=Path, help="what `clare compare --out` wrote")
    parser.add_argument("--tuned", type=Path, help="what `clare tune --out` wrote")
    parser.add_argument("--weights", type=Path, help="what `clare pretrain --out` wrote")
    arguments = parser.parse_args(words)
    try:
        if arguments.name:
            write_json(
                HOME / "results" / f"{arguments.name}.json", collect(arguments.runs, arguments.tuned, arguments.weights)
            )
        write_table()
    except (ClareError, OSError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
