"""One self-contained HTML page about one or more runs."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from clare.files import write_text
from clare.report.compare import Comparison, compare
from clare.report.groups import Spread, Standing, rank
from clare.report.plots import accuracy_heat_map, draw_curves, to_svg
from clare.report.provenance import differing_keys, flat_settings, flatten, reproduce_command, shared_facts
from clare.report.record import RunRecord
from clare.report.standings import DEFINITIONS, Failure, standing_sheets
from clare.report.style import STYLE
from clare.report.tables import NONE, Sheet, comparison_sheet, percent, phase_sheet, points, state, task_sheet


def write_page(
    runs: Sequence[RunRecord],
    target: Path,
    title: str = "Continual learning report",
    reference: str | None = None,
    seed: int = 0,
    ranking: Mapping[str, Sequence[Standing]] | None = None,
    failures: Sequence[Failure] = (),
) -> Path:
    """Write a page that needs nothing but itself; `seed` sets the resamples behind its intervals."""
    ranking = rank(runs, reference, seed) if ranking is None else ranking
    write_text(target, build_page(compare(runs, reference, seed), title, ranking, failures))
    return target


def build_page(
    comparisons: Sequence[Comparison],
    title: str,
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure],
) -> str:
    """The page as HTML."""
    sections = [
        _headline(ranking, title),
        _methods(ranking, failures),
        _curves([each.run for each in comparisons]),
        _comparison(comparisons),
        _run_details(comparisons),
        _settings(comparisons),
        _environment(comparisons),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The browser itself then refuses whatever the page might try to load.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, sections))
        + "\n</body>\n</html>\n"
    )


def _headline(ranking: Mapping[str, Sequence[Standing]], title: str) -> str:
    """The figures of the reference, and how it stands against the best of the others at the same head."""
    rivals, chosen = next((all_, each) for all_ in ranking.values() for each in all_ if each.is_reference)
    run, figures = chosen.group.counted[0], chosen.figures
    cards = [(_over_seeds(name, spread), f"{percent(spread.mean)} %") for name, spread in figures.items()]
    cards.append(("classes in tasks", f"{len(run.start.classes)} in {len(run.start.task_sizes)}"))
    capacity_used = run.tasks[-1].capacity_used if run.tasks else None
    if capacity_used is not None:
        cards.insert(3, ("of the adapter used", f"{percent(capacity_used)} %"))
    shown = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in cards
    )
    description = run.preset.get("description")
    lead = f"<p>{escape(str(description))}</p>" if description else ""
    remark = state(run)
    unfinished = f", which is not finished: {escape(remark)}" if remark else ""
    seeds = f"seed{'s' if len(chosen.group.seeds) > 1 else ''} {', '.join(map(str, chosen.group.seeds))}"
    return (
        f"<header><h1>{escape(title)}</h1>{lead}"
        f'<p class="quiet">Figures of <b>{escape(chosen.group.label)}</b> on the preset '
        f"<b>{escape(str(run.preset['name']))}</b>, {escape(seeds)}{unfinished}.</p></header>\n"
        f'<div class="cards">{shown}</div>{_best_other(chosen, rivals)}'
    )


def _over_seeds(name: str, spread: Spread) -> str:
    """The name of a figure, and how much it varies with the seed."""
    words = name.replace("_", " ")
    return words if spread.deviation is None else f"{words}, ± {percent(spread.deviation)} over seeds"


def _best_other(chosen: Standing, rivals: Sequence[Standing]) -> str:
    """One sentence on the strongest of the methods that were compared with the headline's."""
    best = next((each for each in rivals if each.interval and not each.is_bound), None)
    if best is None or best.interval is None:
        return ""
    return (
        f"<p>The best of the others at the same head by final accuracy is <b>{escape(best.group.label)}</b>: "
        f"{escape(points(best.interval))} points against {escape(chosen.group.label)}.</p>"
    )


def _methods(ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure]) -> str:
    """All methods side by side, apart where their heads differ, and what failed."""
    tables = [f"<h3>{escape(sheet.title)}</h3>{_table(sheet)}" for sheet in standing_sheets(ranking, failures)]
    reasons = [f"<p><b>{escape(each.label)}</b> failed: {escape(each.reason)}</p>" for each in failures]
    return _section("Methods", f'{"".join([*tables, *reasons])}<p class="quiet">{escape(DEFINITIONS)}</p>')


def _comparison(comparisons: Sequence[Comparison]) -> str:
    """All runs side by side."""
    sheet = comparison_sheet(comparisons)
    return _section(f"Run by run: {sheet.title[0].lower()}{sheet.title[1:]}", _table(sheet))


def _curves(runs: Sequence[RunRecord]) -> str:
    """The figures that show all runs at once."""
    figures = [f"<figure>{to_svg(figure, name)}</figure>" for name, figure in draw_curves(runs).items()]
    return _section("Task by task", f'<div class="plots">{"".join(figures)}</div>') if figures else ""


def _run_details(comparisons: Sequence[Comparison]) -> str:
    """Everything about each run on its own, folded away."""
    shown = []
    for index, each in enumerate(comparisons):
        run = each.run
        started = datetime.fromtimestamp(run.start.time, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
        remarks = ", ".join(filter(None, [f"started {started}", state(run)]))
        parts = [f"<h3>Repeat this run</h3><pre>{escape(reproduce_command(run))}</pre>"]
        if run.tasks:
            parts.append(f"<h3>After each task, in percent</h3>{_table(task_sheet(run))}")
            heat_map = to_svg(accuracy_heat_map(run, each.label), f"matrix-{index}")
            parts.append(f"<figure>{heat_map}</figure>")
        if run.phases:
            parts.append(f"<h3>Phases</h3>{_table(phase_sheet(run))}")
        parts.append(f"<h3>Size</h3>{_facts(_sizes(run))}<h3>Settings</h3>{_facts(flat_settings(run))}")
        shown.append(
            f"<details><summary>{escape(each.label)}<span>{escape(remarks)}</span></summary>{''.join(parts)}</details>"
        )
    return _section("Each run", "".join(shown))


def _sizes(run: RunRecord) -> dict[str, str]:
    """What a run trains and keeps."""
    last = run.tasks[-1] if run.tasks else None
    sizes = {
        "coordinates of the adapter": run.start.num_coordinates,
        "coordinates still free": last.num_free if last else None,
        "numbers that a phase trains at most": run.num_trained,
        "numbers stored beside the backbone": last.num_stored if last else None,
        "passes through the backbone per image": last.passes_per_image if last else None,
    }
    shown = {name: f"{size:,}" for name, size in sizes.items() if size is not None}
    return shown | {"backbone": run.start.backbone_hash or NONE}


def _settings(comparisons: Sequence[Comparison]) -> str:
    """The settings in which the runs differ."""
    table = _differing([flat_settings(each.run) for each in comparisons], comparisons, "Setting")
    return _section("Settings that differ", table) if table else ""


def _environment(comparisons: Sequence[Comparison]) -> str:
    """What the runs ran on."""
    facts = [flatten(each.run.environment) for each in comparisons]
    table = _differing(facts, comparisons, "Environment")
    return _section("Environment", _facts(shared_facts(facts)) + table)


def _differing(facts: Sequence[Mapping[str, str]], comparisons: Sequence[Comparison], name: str) -> str:
    """A table of the facts in which the runs differ, empty when they agree."""
    keys = differing_keys(facts)
    rows = tuple((key, *(each.get(key, NONE) for each in facts)) for key in keys)
    return _table(Sheet("", (name, *(each.label for each in comparisons)), rows)) if rows else ""


def _facts(facts: Mapping[str, str]) -> str:
    """Names and values in two columns."""
    rows = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>' for key, value in facts.items()
    )
    return f'<div class="scroll"><table class="words"><tbody>{rows}</tbody></table></div>'


def _table(sheet: Sheet) -> str:
    """A sheet as an HTML table that scrolls sideways on a small screen."""
    header = "".join(f'<th scope="col">{escape(name)}</th>' for name in sheet.header)
    rows = []
    for index, row in enumerate(sheet.rows):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        mark = ' class="mark"' if index in sheet.marked else ""
        rows.append(f'<tr{mark}><th scope="row">{escape(row[0])}</th>{cells}</tr>')
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _section(title: str, body: str) -> str:
    """A part of the page under its heading."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"
