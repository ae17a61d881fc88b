"""One self-contained HTML page about one or more runs."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template

from clare.identity import flatten
from clare.report.charts import LARGE
from clare.report.groups import Group, Standing
from clare.report.page_figures import Figures, capacity_figures, chart_cards, choice_style, matrices
from clare.report.pieces import command, facts, folded, table
from clare.report.record import RunRecord, reproduce_command
from clare.report.standings import (
    DEFINITIONS,
    NO_HEAD,
    Failure,
    comparison_sheet,
    standing_sheets,
    task_sheets,
    untold,
)
from clare.report.styles import COLOUR_STYLE
from clare.report.tables import NONE, Sheet, amount, percent, phase_sheet, points, state, task_sheet

MAX_COLUMNS = 6
NOT_SETTINGS = ("description", "overrides", "method.name")
"""These repeat the run's label or its other settings, in words or as the user typed them."""


def build_page(
    comparisons: Sequence[Standing],
    title: str,
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure] = (),
) -> str:
    """The page as HTML that needs nothing but itself."""
    figures = Figures.of([each.run for each in comparisons], ranking)
    labels = [group.label for group in figures.groups]
    settings = [flat_settings(group.counted[0]) for group in figures.groups]
    settings = [{key: value for key, value in each.items() if key != "seed"} for each in settings]
    repeated = [[f"# {group.label}", *map(reproduce_command, group.runs)] for group in figures.groups]
    lines = "\n\n".join("\n".join(own) for own in repeated)
    sections = (
        ("accuracy", "Incremental accuracy", "Accuracy", chart_cards(figures, [LARGE])),
        ("methods", "Methods", "Methods", _methods(ranking, failures)),
        ("tasks", "Learning and forgetting", "Tasks", chart_cards(figures, ["new-task", "forgetting"])),
        ("matrix", "Accuracy matrix", "Matrix", matrices(figures)),
        ("capacity", "Capacity", "Capacity", capacity_figures(figures)),
        ("costs", "Cost", "Cost", chart_cards(figures, ["stored", "learn-time", "evaluate-time", "memory"])),
        ("settings", "Settings that differ", "Settings", _differing(settings, labels, "Setting")),
        ("repeat", "Repeat these runs", "Repeat", command(lines, is_long=True)),
        ("runs", "Each run", "Runs", _runs(comparisons)),
        ("environment", "Environment", "", _environment(comparisons)),
    )
    whole = "\n".join(
        f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>' for name, title, _, body in sections if body
    )
    links = [f'<a href="#{name}">{short}</a>' for name, _, short, body in sections if short and body]
    script = _asset("page.js")
    return Template(_asset("page.html")).substitute(
        # The browser itself refuses whatever else the page might try to load or run.
        digest=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        title=escape(title),
        style=f"{_asset('page.css')}{COLOUR_STYLE}{choice_style(figures)}",
        header=_headline(ranking, title),
        links="".join(links),
        sections=whole,
        script=script,
    )


def _asset(name: str) -> str:
    """One of the files that the page is put together from."""
    return (files("clare.report") / "assets" / name).read_text(encoding="utf-8")


def _headline(ranking: Mapping[str, Sequence[Standing]], title: str) -> str:
    """The figures of the reference, and how it stands against the best of the others at the same head."""
    rivals, chosen = next((all_, each) for all_ in ranking.values() for each in all_ if each.is_reference)
    run, figures = chosen.group.counted[0], chosen.figures
    cards = []
    for name, (mean, deviation) in figures.items():
        varies = "" if deviation is None else f", ± {percent(deviation)} over seeds"
        cards.append((f"{name.replace('_', ' ')}{varies}", percent(mean), "%"))
    capacity_used = run.tasks[-1].capacity_used if run.tasks else None
    if capacity_used is not None:
        cards.append(("of the adapter used", percent(capacity_used), "%"))
    cards.append((f"classes in {len(run.start.task_sizes)} tasks", str(len(run.start.classes)), ""))
    shown = "".join(
        f'<div class="card"><b>{escape(value)}<i>{unit}</i></b><span>{escape(name)}</span></div>'
        for name, value, unit in cards
    )
    description = run.preset.get("description")
    lead = f"<p>{escape(str(description))}</p>" if description else ""
    remark = state(run)
    unfinished = f", which is not finished: {escape(remark)}" if remark else ""
    seeds = f"seed{'s' if len(chosen.group.seeds) > 1 else ''} {', '.join(map(str, chosen.group.seeds))}"
    return (
        f'<header><h1>{escape(title)}</h1>{lead}<p class="quiet">Figures of <b>{escape(chosen.group.label)}</b> on the '
        f"preset <b>{escape(str(run.preset['name']))}</b>, {escape(seeds)}{unfinished}.</p>"
        f'<div class="cards">{shown}</div>{_best_other(chosen, rivals)}</header>'
    )


def _best_other(chosen: Standing, rivals: Sequence[Standing]) -> str:
    """One sentence on the strongest of the methods that were compared with the headline's."""
    compared = (each for each in rivals if each.intervals and each.against is chosen.group and not each.is_bound)
    best = next(compared, None)
    if best is None:
        return ""
    difference = points(best.intervals["final_accuracy"])
    return (
        f"<p>The best of the others at the same head by final accuracy is <b>{escape(best.group.label)}</b>: "
        f"{escape(difference)} points against {escape(chosen.group.label)}.</p>"
    )


def _methods(ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure]) -> str:
    """All methods side by side, apart where their heads differ, and what failed."""
    tables = [
        f"<h3>Head: {escape(head or NO_HEAD)}</h3>{table(sheet, sheet.title)}"
        for head, sheet in zip(untold(ranking), standing_sheets(ranking, failures, is_wide=True), strict=True)
    ]
    tables += [f"<h3>With the task given</h3>{table(sheet, sheet.title)}" for sheet in task_sheets(ranking)]
    reasons = [f'<p class="failure"><b>{escape(each.label)}</b> failed: {escape(each.reason)}</p>' for each in failures]
    definitions = folded("What the columns mean", f"<p>{escape(DEFINITIONS)}</p>")
    return "".join([*tables, *reasons, definitions])


def _runs(comparisons: Sequence[Standing]) -> str:
    """All runs side by side, and everything about each on its own, folded away."""
    sheet = comparison_sheet(comparisons)
    shown = [table(sheet, sheet.title)] if len(comparisons) > 1 else []
    for each in comparisons:
        run = each.run
        started = datetime.fromtimestamp(run.start.time, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
        remarks = ", ".join(filter(None, [f"seed {run.preset['seed']}", f"started {started}", state(run)]))
        parts = [f"<h3>Repeat this run</h3>{command(reproduce_command(run))}"]
        if run.tasks:
            parts.append(f"<h3>After each task, in percent</h3>{table(task_sheet(run))}")
        if run.phases:
            parts.append(f"<h3>Phases</h3>{table(phase_sheet(run))}")
        parts.append(f"<h3>Size</h3>{facts(_sizes(each.group))}<h3>Settings</h3>{facts(flat_settings(run))}")
        shown.append(folded(each.group.label, "".join(parts), remarks))
    return "".join(shown)


def _sizes(group: Group) -> dict[str, str]:
    """What a run trains, keeps and needs."""
    run = group.runs[0]
    sizes = {
        "coordinates of the adapter": run.start.num_coordinates,
        "coordinates still free": run.tasks[-1].num_free if run.tasks else None,
        "numbers that a phase trains at most": group.costs["num_trained"],
        "numbers stored beside the backbone": group.costs["num_stored"],
        "passes through the backbone per image": group.costs["passes_per_image"],
    }
    shown = {name: f"{size:,}" for name, size in sizes.items() if size is not None}
    shown |= {"training pictures": group.kept} if group.kept else {}
    memory = {} if group.peak_memory is None else {"peak memory": amount(group.peak_memory)}
    return {**shown, **memory, "backbone": run.start.backbone_hash or NONE}


def flat_settings(run: RunRecord) -> dict[str, str]:
    """The settings of a run as dotted keys and JSON values."""
    return {key: value for key, value in flatten(run.preset).items() if key not in NOT_SETTINGS}


def _environment(comparisons: Sequence[Standing]) -> str:
    """What the runs ran on: what is the same everywhere, and what differs."""
    values = [flatten(each.run.environment) for each in comparisons]
    shared = {key: value for key, value in values[0].items() if all(each.get(key) == value for each in values)}
    return facts(shared) + _differing(values, [each.group.label for each in comparisons], "Environment")


def differing_keys(values: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys whose values differ among those that have them; what only one has is its own affair."""
    keys = dict.fromkeys(key for each in values for key in each)
    return [key for key in keys if len({each[key] for each in values if key in each}) > 1]


def _differing(values: Sequence[Mapping[str, str]], labels: Sequence[str], name: str) -> str:
    """The facts in which some differ, empty when they agree: a column for each, or for many who has which value."""
    keys = differing_keys(values)
    if not keys or len(labels) <= MAX_COLUMNS:
        rows = tuple((key, *(each.get(key, NONE) for each in values)) for key in keys)
        return table(Sheet("", (name, *labels), rows)) if rows else ""
    said = {}
    for key in keys:
        having: dict[str, list[str]] = {}
        for each, label in zip(values, labels, strict=True):
            if key in each:
                having.setdefault(each[key], []).append(label)
        common = sorted(having.items(), key=lambda item: -len(item[1]))
        said[key] = "; ".join(f"{value} ({', '.join(own)})" for value, own in common)
    return facts(said)
