"""The tables of docs/results.md: methods at equal heads, variants of a method, figures on validation images, trials."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from result_boards import OURS, Board, Kind, difference

from clare.errors import RunError
from clare.metrics.bootstrap import STATISTICS
from clare.report.standings import NO_HEAD, spread_percent
from clare.report.tables import NONE, Sheet, count, duration, percent
from clare.runner.trials import edge_of

FIGURES = ("Ā", "A_T", "Forgetting", "New task")
COSTS = ("Trained", "Stored", "Passes", "Time")


def head_sheets(board: Board) -> list[Sheet]:
    """One sheet for each head with the methods ranked by final accuracy, CLARE's head first, the upper bound last."""
    kinds = sorted((kind for kind in board.kinds if kind.changes_head_alone), key=lambda kind: -kind.final)
    rivals = [kind for kind in kinds if not kind.is_bound]
    reference = board.find("clare")
    heads = dict.fromkeys(kind.head for kind in rivals)
    ordered = sorted(heads, key=lambda head: reference is None or head != reference.head)
    sheets = [_head_sheet(board, head, [kind for kind in rivals if kind.head == head]) for head in ordered]
    bounds = [kind for kind in kinds if kind.is_bound]
    if bounds:
        # Over a single task the average is the final accuracy and nothing can be forgotten.
        rows = tuple((kind.name, *_figures(kind)[0:3:2], *_costs(kind)) for kind in bounds)
        header = ("Method", "Seeds", "A_T", *COSTS)
        sheets.append(Sheet("Upper bound: all classes at once, not a rival", header, rows))
    return sheets


def _head_sheet(board: Board, head: str, kinds: Sequence[Kind]) -> Sheet:
    """The methods with one head."""
    reference = next(filter(None, (board.at_head(method, head) for method in OURS)), None)
    rows = [(kind.name, *_figures(kind), _against(kind, reference), *_costs(kind)) for kind in kinds]
    marked = frozenset(index for index, kind in enumerate(kinds) if kind.method in OURS)
    header = ("Method", "Seeds", *FIGURES, f"A_T against {reference.method if reference else OURS[0]}", *COSTS)
    return Sheet(f"Head: {head or NO_HEAD}", header, tuple(rows), marked)


def variant_sheets(board: Board) -> list[Sheet]:
    """One sheet for each method that was run with other settings than the preset's, its own row first."""
    sheets = []
    for method in dict.fromkeys(kind.method for kind in board.kinds if not kind.changes_head_alone):
        base = board.find(method)
        kinds = [kind for kind in board.kinds if kind.method == method and kind.changes]
        ordered = [*([base] if base else []), *sorted(kinds, key=lambda kind: -kind.final)]
        rows = tuple(
            (
                kind.runs[0].variant or "the preset's own settings",
                *_figures(kind),
                _against(kind, base),
                _capacity(kind),
            )
            for kind in ordered
        )
        header = ("Variant", "Seeds", *FIGURES, f"A_T against {method}", "Adapter used")
        sheets.append(Sheet(f"Variants of {method}", header, rows, frozenset([0] if base else [])))
    return sheets


def validation_sheet(board: Board) -> Sheet:
    """What was measured on validation images of a preset."""
    kinds = sorted(board.kinds, key=lambda kind: -kind.final)
    rows = tuple((kind.label, *_figures(kind)) for kind in kinds)
    title = f"{board.preset}, on validation images"
    return Sheet(title, ("Method", "Seeds", *FIGURES), rows)


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


def provenance(board: Board) -> str:
    """Say on what, with what and when the runs of a board were made."""
    runs = [run for kind in board.kinds for run in kind.runs]
    devices = sorted({f"{run.environment.get('device')} in {run.environment.get('precision')}" for run in runs})
    versions = sorted({f"clare {run.environment.get('clare')}, torch {run.environment.get('torch')}" for run in runs})
    days = sorted({run.result["started"][:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{len(runs)} runs on {'; '.join(devices)}, {'; '.join(versions)}, {when}."


def _figures(kind: Kind) -> tuple[str, ...]:
    """How many seeds, and the accuracies in percent."""
    figures = [spread_percent(kind.figures[name]) for name in STATISTICS]
    return (str(len(kind.runs)), *figures, spread_percent(kind.new_task_accuracy))


def _against(kind: Kind, reference: Kind | None) -> str:
    """The difference to the reference in points."""
    if reference is None:
        return NONE
    if kind is reference:
        return "reference"
    found = difference(kind, reference)
    return "no shared seed" if found is None else str(found)


def _costs(kind: Kind) -> tuple[str, ...]:
    """What a kind costs."""
    passes = NONE if kind.passes_per_image is None else str(kind.passes_per_image)
    return count(kind.num_trained), count(kind.num_stored), passes, duration(kind.seconds)


def _capacity(kind: Kind) -> str:
    """The share of the adapter in use at the end."""
    used = [run.tasks[-1].capacity_used for run in kind.runs]
    return percent(statistics.fmean(each for each in used if each is not None)) if None not in used else NONE
