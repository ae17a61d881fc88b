"""An experiment's results as Markdown, CSV and JSON."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clare.files import write_json, write_text
from clare.paper.paper import Metric, Published, in_words
from clare.paper.results import Cell, Results, Setting, as_values, difference, printed, rounded
from clare.report.groups import Spread
from clare.report.record import reproduce_command
from clare.report.tables import NONE, Sheet, to_csv, to_markdown
from clare.templates import fill_text
from clare.version import __version__

SYMBOLS: dict[Metric, str] = {"average": "Ā", "final": "A_T"}


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
    return fill_text("paper/conditions.md", results=results, in_words=in_words).splitlines()


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
    """The whole page as Markdown, with what the numbers were made with."""
    made_by = [record.environment for cell in results.cells.values() for record in cell.records]
    made = {
        f"clare {each.get('clare')}, torch {each.get('torch')} on {each.get('device')} in {each.get('precision')}"
        for each in made_by
    }
    return fill_text(
        "paper/page.md",
        results=results,
        parts=[*(to_markdown(sheet).rstrip() for sheet in sheets(results)), *extra],
        conditions=conditions(results),
        failures=failures(results),
        made=sorted(made),
        version=__version__,
    )


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
