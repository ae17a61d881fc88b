"""The trials of `clare tune` that chose the settings: how many each method had, their figures, and the choice."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clare.errors import RunError
from clare.report.tables import NONE, Sheet, percent
from clare.runner.tune import edge_of


def tuning_sheets(folder: Path) -> Iterator[Sheet]:
    """One sheet for all tunings on the same images: how many trials each method had, their figures, and the choice."""
    together: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        try:
            tuning = json.loads(path.read_bytes())
            trials = together.setdefault(_tuning_title(tuning), [])
            trials += tuning["trials"]
            _trial_rows(tuning["trials"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} is not what `clare tune` writes ({error!r}); collect it again") from None
    header = ("Method", "Trials", "Failed", "Worst A_T", "Median A_T", "Best A_T", "Chosen")
    for title, trials in together.items():
        yield Sheet(title, header, _trial_rows(trials))


def _tuning_title(tuning: Mapping[str, Any]) -> str:
    """Say on which images trials were made, and what the best has most of."""
    tasks = f"the first {tuning['num_tasks']} tasks" if tuning["num_tasks"] else "all tasks"
    return f"{tuning['preset']}: {tasks}, seed {tuning['seed']}, chosen by {tuning['chosen_by'].replace('_', ' ')}"


def _trial_rows(trials: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """One row for each method: its trials, and the settings of the best."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        by_method.setdefault(trial["method"], []).append(trial)
    rows = []
    for method, own in by_method.items():
        ended = [trial for trial in own if "error" not in trial]
        scores = sorted(trial["final_accuracy"] for trial in ended)
        shown = [percent(score) for score in ([scores[0], statistics.median(scores), scores[-1]] if scores else [])]
        rows.append((method, str(len(own)), str(len(own) - len(ended)), *(shown or [NONE] * 3), _choice(own, ended)))
    return tuple(rows)


def _choice(trials: Sequence[Mapping[str, Any]], ended: Sequence[Mapping[str, Any]]) -> str:
    """Name the settings of the best trial, and which of them are the last that was tried on their side."""
    if not ended:
        return "no trial ended"
    best = max(ended, key=lambda trial: (trial["final_accuracy"], trial["average_accuracy"]))
    told = []
    for key, value in best["settings"].items():
        edge = edge_of(value, [trial["settings"][key] for trial in trials])
        told.append(f"{key} {value}" + (f" ({edge})" if edge else ""))
    return ", ".join(told) or "no choice"
