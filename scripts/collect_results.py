"""Gather the runs below a folder into one small JSON for results/.

Usage: python scripts/collect_results.py RUNS TARGET.json 'the command that made the runs'
"""

import json
import sys
from pathlib import Path

from clare.files import write_json
from clare.report.record import find_runs
from clare.report.summary import summary_of


def main(folder: Path, target: Path, command: str) -> None:
    """Write preset, seed, versions, device, settings and figures of every run."""
    runs = find_runs([folder])
    reference = runs[0]
    summary = summary_of(runs)
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
    print(json.dumps({name: [row["average_accuracy"], row["final_accuracy"]] for name, row in summary.items()}))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
