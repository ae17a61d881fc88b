"""Bring labels, names and commands of the files below results/runs and results/validation up to date.

A preset may change after a run: then the run differs from it in other settings than before, and needs another command.
What was measured stays as it is.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from result_files import NEUTRAL, StoredRun, differing, read_result, result_name, write_result

from clare.errors import RunError
from clare.presets.load import make_experiment
from clare.presets.schema import completed
from clare.report.provenance import flatten, reproduce_command

RESULTS = Path(__file__).parents[1] / "results"


def whole_settings(run: StoredRun) -> dict[str, Any]:
    """Return a run's settings with those that came later at their default."""
    return completed({**run.result["settings"], "name": run.preset["name"], "seed": run.seed})


def is_current(run: StoredRun) -> bool:
    """Tell whether a run's command still means its settings, and its label still what differs from its preset."""
    preset, method = str(run.preset["name"]), str(run.result["settings"]["method"]["name"])
    settings = whole_settings(run)
    repeated = make_experiment(preset, method, run.result["settings"]["overrides"], run.seed).model_dump(mode="json")
    own = make_experiment(preset, method, seed=run.seed).model_dump(mode="json")
    return not differing(settings, repeated) and differing(settings, own) == dict(run.changes)


def overrides_of(run: StoredRun, changes: Mapping[str, str]) -> list[str]:
    """Return what must be set to repeat a run: what says how and on which images it ran, and its changes."""
    settings = flatten(whole_settings(run))
    given = run.result["settings"]["overrides"]
    kept = [each for each in given if NEUTRAL.fullmatch(each.partition("=")[0].strip())]
    keys = [key if key in settings else f"method.{key}" for key in changes]
    return [*kept, *(f"{key}={settings[key]}" for key in keys)]


def refreshed(run: StoredRun) -> dict[str, Any]:
    """Return a result as it would be collected today."""
    own = make_experiment(str(run.preset["name"]), str(run.result["settings"]["method"]["name"]), seed=run.seed)
    changes = differing(whole_settings(run), own.model_dump(mode="json"))
    overrides = overrides_of(run, changes)
    settings = {**run.result["settings"], "overrides": overrides}
    command = reproduce_command(replace(run, preset={**run.preset, "overrides": overrides}))
    return {**run.result, "changes": changes, "settings": settings, "command": command}


def refresh(paths: Sequence[Path]) -> dict[Path, Path]:
    """Write results anew under the names they have today, and return where those are that were out of date."""
    runs = {path: read_result(path) for path in paths}
    results = {path: refreshed(run) for path, run in runs.items() if not is_current(run)}
    targets = {path: path for path in paths}
    for path, result in results.items():
        targets[path] = path.with_name(result_name(result["method"], result["changes"], result["seed"]))
    for path, target in targets.items():
        other = next((each for each in targets if each != path and targets[each] == target), None)
        if other:
            raise RunError(f"{path.name} and {other.name} are both called {target.name} today; remove one of them")
    for path, result in results.items():
        write_result(targets[path], result)
    # Names may have been exchanged: only now is it known which files nobody is called any more.
    for path in targets.keys() - set(targets.values()):
        path.unlink()
    return {path: targets[path] for path in results}


if __name__ == "__main__":
    found = sorted(path for kind in ("runs", "validation") for path in (RESULTS / kind).glob("*/*.json"))
    try:
        for old, new in refresh(found).items():
            print(f"{old.relative_to(RESULTS)} -> {new.name}")
    except RunError as error:
        sys.exit(str(error))
