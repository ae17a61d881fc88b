"""Put the runs of a comparison and their differences into one file.

python scripts/collect_demo.py runs/quickdraw --command 'make run' --into results/quickdraw_demo.json
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from clare.errors import ClareError
from clare.files import write_json
from clare.report.groups import compare
from clare.report.record import find_runs
from clare.report.standings import summary_of_runs


def collect(folders: Sequence[Path], target: Path, command: str) -> None:
    """Write preset, seed, versions, device, settings, figures and differences of all runs into one file."""
    runs = find_runs(folders)
    reference = runs[0]
    summary = summary_of_runs(compare(runs))
    for name, run in zip(summary, runs, strict=True):
        summary[name]["settings"] = run.preset["method"]
    write_json(
        target,
        {
            "command": command,
            "preset": reference.preset["name"],
            "seed": reference.preset["seed"],
            "evaluate_on": reference.preset["stream"]["evaluate_on"],
            "environment": dict(reference.environment),
            "methods": summary,
        },
    )


def main(words: Sequence[str]) -> str | None:
    """Collect what the command line names, and return why not where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUNS")
    parser.add_argument("--into", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--command", required=True, help="the command that made the runs")
    arguments = parser.parse_args(words)
    try:
        collect(arguments.folders, arguments.into, arguments.command)
    except ClareError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
