"""Choose the settings of the Quick, Draw! presets on validation data; test images are never looked at.

Usage: python scripts/tune_quickdraw.py PRESET --jobs 8 --out FOLDER [--trial 'METHOD key=value …']…
Runs every trial with stream.evaluate_on=validation, prints a line for each, and writes FOLDER/trials.json.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def run_trial(preset: str, trial: str, folder: Path) -> dict[str, Any]:
    """Run one trial in a process of its own and return what it reached."""
    method, *settings = trial.split()
    name = trial.replace(" ", "_").replace("/", "-")
    command = [sys.executable, "-m", "clare", "train", preset, "--method", method, "--out", str(folder / name)]
    for setting in ["stream.evaluate_on=validation", *settings]:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"trial": trial, "error": done.stderr.strip().splitlines()[-1:]}
    events = [json.loads(line) for line in (folder / name / "record.jsonl").read_text().splitlines()]
    tasks = [event for event in events if event["event"] == "task"]
    seen = [task["accuracy"]["seen"] for task in tasks]
    return {
        "trial": trial,
        "average_accuracy": round(sum(seen) / len(seen), 4),
        "final_accuracy": round(seen[-1], 4),
        "new_accuracy": round(sum(task["accuracy"]["new"] for task in tasks) / len(tasks), 4),
        "seconds": round(sum(sum(task["seconds"].values()) for task in tasks), 1),
        "environment": json.loads((folder / name / "environment.json").read_text()),
    }


def main() -> None:
    """Run all trials, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trial", action="append", required=True)
    arguments = parser.parse_args()
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda trial: run_trial(arguments.preset, trial, arguments.out), arguments.trial):
            results.append(result)
            print({key: value for key, value in result.items() if key != "environment"}, flush=True)
    path = arguments.out / f"{arguments.preset}-trials.json"
    path.write_text(json.dumps({"preset": arguments.preset, "evaluate_on": "validation", "trials": results}, indent=2))


if __name__ == "__main__":
    main()
