"""Gather finished runs into results/: one small JSON each, or all together in one file.

python scripts/collect_results.py RUNS…                      each run below results/runs/PRESET/ or results/validation/
    --shared-device                                          the runs shared it, so their times say nothing of growth
python scripts/collect_results.py TUNE_FOLDER…               a folder of `clare tune`: its trials to results/tuning/
python scripts/collect_results.py RUNS --into FILE.json --command 'make run'    all runs and their differences
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result_files import differing, overridden, refuse_paths, result_name, result_of, without_paths, write_result

from clare.errors import ClareError, RunError
from clare.files import write_json
from clare.presets.load import make_experiment
from clare.presets.schema import completed
from clare.report.record import RunRecord, find_runs
from clare.report.summary import summary_of

TUNED = "tune.json"


def changes_of(run: RunRecord) -> dict[str, str]:
    """Return what differs from the preset's own settings for the method; of a preset not found here, the overrides.

    A run that was made before a setting came to be had its default.
    """
    try:
        own = make_experiment(str(run.preset["name"]), str(run.preset["method"]["name"]), seed=int(run.preset["seed"]))
    except (ClareError, KeyError, TypeError):
        return overridden(run.preset)
    return differing(completed(run.preset), own.model_dump(mode="json"))


def place_of(result: dict[str, Any], results: Path) -> Path:
    """Return where a result belongs; figures on validation images stay apart from those on test images."""
    kind = {"test": "runs", "validation": "validation"}[result["evaluate_on"]]
    name = result_name(result["method"], result["changes"], result["seed"])
    return results / kind / str(result["preset"]) / name


def collect(folders: Sequence[Path], results: Path, shared: bool = False) -> tuple[list[Path], list[str]]:
    """Write each finished run's result, and return the files with a sentence for each run that was refused."""
    written: dict[Path, Path] = {}
    refused = []
    for run in find_runs(folders):
        try:
            result = {**result_of(run, changes_of(run)), "shared_device": shared}
            path = place_of(result, results)
            if path in written:
                raise RunError(f"{run.folder} and {written[path]} are the same experiment; collect one of them")
            write_result(path, result)
            written[path] = run.folder
        except ClareError as error:
            refused.append(str(error))
    return list(written), refused


def collect_trials(folder: Path, results: Path) -> Path:
    """Copy the trials of a `clare tune` without the paths of its machine."""
    path = results / "tuning" / f"{folder.resolve().name}.json"
    try:
        trials = json.loads((folder / TUNED).read_bytes())
        preset = "+".join(Path(part).stem if part.endswith(".toml") else part for part in trials["preset"].split("+"))
    except (ValueError, KeyError, AttributeError) as error:
        raise RunError(f"{folder / TUNED} is not what `clare tune` writes ({error!r}); tune again") from None
    copy = {**without_paths(trials), "preset": preset}
    refuse_paths(copy, folder)
    if path.is_file() and (other := json.loads(path.read_bytes())["preset"]) != preset:
        raise RunError(f"{path} holds the trials of {other}, not of {preset}; give the folder another name")
    write_result(path, copy)
    return path


def collect_together(folders: Sequence[Path], target: Path, command: str) -> None:
    """Write preset, seed, versions, device, settings, figures and differences of all runs into one file."""
    runs = find_runs(folders)
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


def main(words: Sequence[str]) -> list[str]:
    """Collect what the command line names, and return why the rest was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUNS")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results", metavar="FOLDER")
    parser.add_argument("--shared-device", action="store_true", help="other runs used the device at the same time")
    parser.add_argument("--into", type=Path, metavar="FILE.json", help="one file for all runs")
    parser.add_argument("--command", help="with --into: the command that made the runs")
    arguments = parser.parse_args(words)
    if (arguments.into is None) != (arguments.command is None):
        parser.error("--into and --command belong together; give both or none")
    if arguments.shared_device and arguments.into:
        parser.error("--shared-device marks the files of single runs; leave it out with --into")
    try:
        if arguments.into:
            collect_together(arguments.folders, arguments.into, arguments.command)
            return []
        tuned = [folder for folder in arguments.folders if (folder / TUNED).is_file()]
        written = [collect_trials(folder, arguments.results) for folder in tuned]
        others = [folder for folder in arguments.folders if folder not in tuned]
        files, refused = collect(others, arguments.results, arguments.shared_device) if others else ([], [])
    except ClareError as error:
        return [str(error)]
    for path in [*written, *files]:
        print(path)
    return refused


if __name__ == "__main__":
    sentences = main(sys.argv[1:])
    sys.exit("\n".join(sentences) or 0)
