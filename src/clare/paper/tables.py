"""An experiment's results as Markdown, CSV and JSON."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clare.files import write_json, write_text
from clare.paper.catalogue import Metric
from clare.paper.paper import Published, in_words
from clare.paper.results import Cell, Results, Setting, as_values, difference, printed, rounded
from clare.report.groups import Spread
from clare.report.record import reproduce_command
from clare.report.tables import NONE, Sheet, to_csv, to_markdown
from clare.version import __version__

SYMBOLS: dict[Metric, str] = {"average": "Ā", "final": "A_T"}
DEFINITIONS = (
    "Ā is the mean of the accuracies over all seen classes after each task, A_T the accuracy after the last task, both "
    "in percent. Δ is a row minus the reference row of the same column, to paper our number minus the printed one, "
    "all computed from the rows. ± is the sample standard deviation over seeds."
)


def number(value: float | None) -> str:
    """A number with two digits, as the paper prints them."""
    return NONE if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    """A difference with its sign; no zero has a minus."""
    return NONE if value is None else f"{round(value, 2) + 0.0:+.2f}"


def with_deviation(found: Spread) -> str:
    """A mean with its deviation over seeds."""
    return number(found.mean) if found.deviation is None else f"{number(found.mean)} ± {number(found.deviation)}"


def sheets(results: Results) -> list[Sheet]:
    """One sheet for each preset; where the paper has no numbers of one, those of its other streams follow."""
    found = [preset_sheet(results, setting) for setting in results.settings]
    if not all(setting.has_numbers for setting in results.settings):
        found += paper_sheets(results)
    return found


def preset_sheet(results: Results, setting: Setting) -> Sheet:
    """Our rows on one preset, beside the paper's where it has them; what failed is said so."""
    metrics, cells = results.study.metrics, results.rows(setting.preset)

    def ours(cell: Cell, metric: Metric) -> str:
        # In the first column it is said that there is no figure.
        return "failed" if cell.failed and metric == metrics[0] else with_deviation(cell.figures[metric])

    columns: list[tuple[str, Callable[[Cell, Metric], str]]] = [
        ("", ours),
        ("Δ ", lambda cell, metric: signed(results.delta(cell, metric))),
    ]
    shows_paper = any(printed(cell.published, metric) is not None for cell in cells for metric in metrics)
    if shows_paper:
        columns += [
            ("paper ", lambda cell, metric: _printed(cell.published, metric)),
            ("paper Δ ", lambda cell, metric: signed(results.paper_delta(cell, metric))),
        ]
        # Of another backbone only differences between rows can be set beside each other.
        beside, what = (
            (results.to_paper, "to paper ") if setting.is_paper else (results.delta_to_paper, "Δ to paper's Δ ")
        )
        columns.append((what, lambda cell, metric: signed(beside(cell, metric))))
    header = ("Row", *(f"{title}{SYMBOLS[metric]}" for title, _ in columns for metric in metrics))
    rows = tuple((_label(cell), *(text(cell, metric) for _, text in columns for metric in metrics)) for cell in cells)
    marked = frozenset(place for place, row in enumerate(results.study.rows) if row.key == results.study.reference)
    where = "" if setting.is_paper or not shows_paper else "; the paper's numbers are of another backbone"
    return Sheet(f"{setting.experiment.name}{where}", header, rows, marked)


def _label(cell: Cell) -> str:
    """A row's label with the value that was chosen for it."""
    if cell.choice is None:
        return cell.row.label
    chosen = "nothing could be chosen" if cell.choice.chosen is None else cell.choice.chosen.partition("=")[2]
    return f"{cell.row.label} ({chosen})"


def _printed(published: Published, metric: Metric) -> str:
    """What the paper prints, with its deviation where it gives one."""
    deviation = published.deviation if metric == "final" else None
    return with_deviation(Spread(printed(published, metric), deviation))


def paper_sheets(results: Results) -> list[Sheet]:
    """The paper's numbers on those of its streams that none of our presets is."""
    study = results.study
    ours = {setting.stream for setting in results.settings}
    symbols = [SYMBOLS[metric] for metric in study.metrics]
    header = ("Row", *symbols, *(f"Δ {symbol}" for symbol in symbols))
    found = []
    for stream, cells in results.paper.numbers.get(study.name, {}).items():
        if stream in ours or all(published.final is None for published in cells.values()):
            continue
        reference, rows = cells.get(study.reference, Published()), []
        for row in study.rows:
            own = cells.get(row.key, Published())
            deltas = [difference(printed(own, metric), printed(reference, metric)) for metric in study.metrics]
            rows.append((row.label, *(_printed(own, metric) for metric in study.metrics), *map(signed, deltas)))
        found.append(Sheet(f"The paper on {stream}, other data than ours", header, tuple(rows)))
    return found


def conditions(results: Results) -> list[str]:
    """Say for each preset what is as in the paper and what is not."""
    changed = [f"Settings changed for this table: {', '.join(results.overrides)}."] if results.overrides else []
    return [_condition(results, setting) for setting in results.settings] + changed


def _condition(results: Results, setting: Setting) -> str:
    """One sentence for one preset."""
    paper, name = results.paper, setting.experiment.name
    ours = setting.experiment.backbone.name
    theirs = paper.backbone_of(results.study.name)
    parts = [f"the paper's stream {setting.stream}" if setting.stream else "other data than the paper's"]
    parts.append(
        f"its backbone {theirs}" if setting.same_backbone else f"another backbone ({ours}, the paper's is {theirs})"
    )
    if setting.same_seeds is False:
        parts.append(f"other seeds than the paper's {paper.seed}")
    if setting.recipe:
        changed = ", ".join(f"{key} {ours} ({in_words(theirs)})" for key, (ours, theirs) in setting.recipe.items())
        parts.append(f"settings of CLARE other than the paper's text reads: {changed}")
    compared = "" if setting.is_paper else "; our numbers and the paper's are not subtracted from each other"
    return f"{name}: {'; '.join(parts)}{compared}."


def choices(results: Results) -> list[str]:
    """Say for each row with choices which was taken, and by what numbers on validation images."""
    lines = []
    for cell, choice in ((cell, cell.choice) for cell in results.cells.values() if cell.choice):
        key = next(iter(choice.scores)).partition("=")[0]
        scores = [
            f"{each.partition('=')[2]}: {'failed' if score is None else number(100 * score[0])}"
            for each, score in choice.scores.items()
        ]
        lines.append(
            f"{results.name(cell.preset)}: {cell.row.label} runs with {choice.chosen or 'nothing'}, chosen by final "
            f"accuracy on validation images ({key} {', '.join(scores)}); the paper reports the best of these values."
        )
    return lines


def failures(results: Results) -> list[str]:
    """Say which rows failed and why."""
    return [
        f"{results.name(cell.preset)}, {cell.row.label} failed: {reason}"
        for cell in results.cells.values()
        for reason in cell.reasons
    ]


def write_results(results: Results, folder: Path, extra: Sequence[str], more: dict[str, Any]) -> Path:
    """Write NAME.md, NAME.csv and NAME.json; `extra` are further parts of the page, `more` further figures."""
    name = results.study.name
    write_text(folder / f"{name}.csv", to_csv([as_values(results, cell) for cell in results.cells.values()]))
    write_json(folder / f"{name}.json", {**as_json(results, folder), **more})
    path = folder / f"{name}.md"
    write_text(path, to_page(results, extra))
    return path


def to_page(results: Results, extra: Sequence[str] = ()) -> str:
    """The whole page as Markdown."""
    study = results.study
    parts = [f"# {study.name}: {study.title}", f"Beside the numbers of {results.paper.source}."]
    parts += [to_markdown(sheet).rstrip() for sheet in sheets(results)]
    parts += extra
    notes = [*conditions(results), *choices(results), *failures(results), *results.paper.remarks.get(study.name, [])]
    parts += ["\n".join(f"- {note}" for note in notes), DEFINITIONS, _versions(results)]
    return "\n\n".join(parts) + "\n"


def _versions(results: Results) -> str:
    """Say with what the numbers were made."""
    made_by = [record.environment for cell in results.cells.values() for record in cell.records]
    places = {
        f"clare {each.get('clare')}, torch {each.get('torch')} on {each.get('device')} in {each.get('precision')}"
        for each in made_by
    }
    made = "; ".join(sorted(places)) or f"clare {__version__}, no run came to its end"
    return f"Made with {made}; seeds {', '.join(map(str, results.seeds))}."


def as_json(results: Results, folder: Path) -> dict[str, Any]:
    """Every figure with where it comes from; runs are named from the folder of the tables."""
    return {
        "experiment": results.study.name,
        "title": results.study.title,
        "paper": results.paper.source,
        "seeds": list(results.seeds),
        "overrides": list(results.overrides),
        "presets": {
            setting.preset: {
                "name": setting.experiment.name,
                "stream_in_paper": setting.stream,
                "paper_has_numbers": setting.has_numbers,
                "same_backbone": setting.same_backbone,
                "same_seeds": setting.same_seeds,
                "recipe_differences": {key: list(values) for key, values in setting.recipe.items()},
            }
            for setting in results.settings
        },
        "cells": [
            {**as_values(results, cell), "runs": _runs(cell, folder), "choice": _choice_values(cell)}
            for cell in results.cells.values()
        ],
    }


def _runs(cell: Cell, folder: Path) -> list[dict[str, Any]]:
    """Where the runs of a cell are and how each is repeated."""
    return [
        {
            "folder": os.path.relpath(record.folder, folder.resolve()),
            "preset": record.preset["name"],
            "seed": record.preset["seed"],
            "command": reproduce_command(record),
            "settings": dict(record.preset),
            "environment": dict(record.environment),
        }
        for record in cell.records
    ]


def _choice_values(cell: Cell) -> dict[str, Any] | None:
    """What was chosen for a cell, and by what numbers."""
    if cell.choice is None:
        return None
    scores = {
        choice: None if score is None else {"final": rounded(100 * score[0]), "average": rounded(100 * score[1])}
        for choice, score in cell.choice.scores.items()
    }
    return {"chosen": cell.choice.chosen, "on": "validation", "scores": scores}
