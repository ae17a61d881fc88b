"""Gather finished runs into the study: one small JSON each, in the folder of its stream and row.

python studies/vits14-112/collect_results.py RUNS…        to results/STREAM/ROW/SEED.json, or validation/ by its images
    --shared-device                                       the runs shared it, so their times say nothing of growth
python studies/vits14-112/collect_results.py TUNE_FOLDER  a folder of `clare tune`: its trials to tuning/
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from result_files import refuse_paths, result_of, without_paths, write_result
from study import HOME, Study, read_study

from clare.errors import ClareError, RunError
from clare.report.record import RunRecord, find_runs

TUNED = "tune.json"
PLACES = {"test": "results", "validation": "validation"}
"""Figures on validation images stay apart from those on test images."""


def stream_of(run: RunRecord, study: Study) -> str:
    """Return the stream that a run was made on."""
    name = str(run.preset["name"])
    known = {
        "+".join(Path(part).stem for part in preset.split("+")): stream for stream, preset in study.presets.items()
    }
    if name not in known:
        raise RunError(f"the run in {run.folder} is on '{name}', which is no stream of study.toml; add it there")
    return known[name]


def row_of(run: RunRecord, stream: str, study: Study) -> str:
    """Return the id of the row whose settings a run has."""
    row = study.find(stream, run.preset)
    if row is None:
        raise RunError(
            f"the run of {run.method} in {run.folder} has the settings of no row of study.toml; "
            "add a row with what differs from the preset"
        )
    return row.id


def command_of(run: RunRecord, stream: str, row: str, study: Study) -> str:
    """Return the command that repeats a run."""
    seed, method = str(run.preset["seed"]), study.row(row).method
    words = ["clare", "train", study.presets[stream], "--method", method, "--seed", seed]
    on_validation = run.preset["stream"]["evaluate_on"] == "validation"
    where = ["stream.evaluate_on=validation"] if on_validation else []
    for setting in (*where, *(study.row(row).settings_on(stream) or ())):
        words += ["--set", setting]
    return shlex.join(words)


def collect(folders: Sequence[Path], home: Path, study: Study, shared: bool = False) -> tuple[list[Path], list[str]]:
    """Write each finished run's result, and return the files with a sentence for each run that was refused."""
    written: dict[Path, Path] = {}
    refused = []
    for run in find_runs(folders):
        try:
            stream = stream_of(run, study)
            row = row_of(run, stream, study)
            result = result_of(run, stream, row, command_of(run, stream, row, study))
            path = home / PLACES[result["evaluate_on"]] / stream / row / f"{result['seed']}.json"
            if path in written:
                raise RunError(f"{run.folder} and {written[path]} are the same experiment; collect one of them")
            write_result(path, {**result, "shared_device": shared})
            written[path] = run.folder
        except ClareError as error:
            refused.append(str(error))
    return list(written), refused


def collect_trials(folder: Path, home: Path) -> Path:
    """Copy the trials of a `clare tune` without the paths of its machine."""
    path = home / "tuning" / f"{folder.resolve().name}.json"
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


def main(words: Sequence[str]) -> list[str]:
    """Collect what the command line names, and return why the rest was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUNS")
    parser.add_argument("--home", type=Path, default=HOME, metavar="FOLDER", help="the study's folder")
    parser.add_argument("--shared-device", action="store_true", help="other runs used the device at the same time")
    arguments = parser.parse_args(words)
    try:
        tuned = [folder for folder in arguments.folders if (folder / TUNED).is_file()]
        written = [collect_trials(folder, arguments.home) for folder in tuned]
        others = [folder for folder in arguments.folders if folder not in tuned]
        found: tuple[list[Path], list[str]] = ([], [])
        if others:
            found = collect(others, arguments.home, read_study(), arguments.shared_device)
    except ClareError as error:
        return [str(error)]
    for path in [*written, *found[0]]:
        print(path)
    return found[1]


if __name__ == "__main__":
    sentences = main(sys.argv[1:])
    sys.exit("\n".join(sentences) or 0)
