"""One self-contained HTML page about one or more runs."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from clare.identity import flatten
from clare.report.groups import Group, Standing
from clare.report.page_figures import Figures
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
from clare.report.styles import COLOURS, COLOURS_ON_DARK
from clare.report.tables import NONE, Sheet, amount, percent, phase_sheet, points, state, task_sheet
from clare.templates import fill, read_asset

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
    settings = [flat_settings(group.counted[0]) for group in figures.groups]
    settings = [{key: value for key, value in each.items() if key != "seed"} for each in settings]
    repeated = ["\n".join([f"# {group.label}", *map(reproduce_command, group.runs)]) for group in figures.groups]
    rivals, chosen = next((all_, each) for all_ in ranking.values() for each in all_ if each.is_reference)
    compared = (each for each in rivals if each.intervals and each.against is chosen.group and not each.is_bound)
    best, run = next(compared, None), chosen.group.counted[0]
    environments = [flatten(each.run.environment) for each in comparisons]
    script = read_asset("report/assets/page.js")
    return fill(
        "report/assets/page.html",
        title=title,
        digest=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        style=Markup(read_asset("report/assets/page.css")),
        colours=zip(COLOURS, COLOURS_ON_DARK, strict=True),
        script=Markup(script),
        figures=figures,
        description=run.preset.get("description"),
        preset=run.preset["name"],
        remark=state(run),
        chosen=chosen,
        headline=_headline(chosen),
        best=best,
        difference=best and points(best.intervals["final_accuracy"]),
        rankings=zip(
            [head or NO_HEAD for head in untold(ranking)], standing_sheets(ranking, failures, is_wide=True), strict=True
        ),
        task_sheets=task_sheets(ranking),
        failures=failures,
        definitions=DEFINITIONS,
        differing_settings=_differing(settings, [group.label for group in figures.groups], "Setting"),
        repeat="\n\n".join(repeated),
        comparisons=comparisons,
        comparison=comparison_sheet(comparisons),
        remarks=_remarks,
        command=reproduce_command,
        task_sheet=task_sheet,
        phase_sheet=phase_sheet,
        sizes=_sizes,
        settings=flat_settings,
        # What the runs ran on: what is the same everywhere, and what differs.
        environment=dict(
            item for item in environments[0].items() if all(item in each.items() for each in environments)
        ),
        differing_environment=_differing(environments, [each.group.label for each in comparisons], "Environment"),
    )


def _headline(chosen: Standing) -> list[tuple[str, str, str]]:
    """Names, values and units of the figures of the reference."""
    run, cards = chosen.group.counted[0], []
    for name, (mean, deviation) in chosen.figures.items():
        varies = "" if deviation is None else f", ± {percent(deviation)} over seeds"
        cards.append((f"{name.replace('_', ' ')}{varies}", percent(mean), "%"))
    capacity_used = run.tasks[-1].capacity_used if run.tasks else None
    if capacity_used is not None:
        cards.append(("of the adapter used", percent(capacity_used), "%"))
    return [*cards, (f"classes in {len(run.start.task_sizes)} tasks", str(len(run.start.classes)), "")]


def _remarks(run: RunRecord) -> str:
    """Seed and start of a run, and how far it came."""
    started = datetime.fromtimestamp(run.start.time, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    return ", ".join(filter(None, [f"seed {run.preset['seed']}", f"started {started}", state(run)]))


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


def differing_keys(values: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys whose values differ among those that have them; what only one has is its own affair."""
    keys = dict.fromkeys(key for each in values for key in each)
    return [key for key in keys if len({each[key] for each in values if key in each}) > 1]


def _differing(values: Sequence[Mapping[str, str]], labels: Sequence[str], name: str) -> Sheet | dict[str, str]:
    """The facts in which some differ: a column for each, or for many who has which value."""
    keys = differing_keys(values)
    if keys and len(labels) <= MAX_COLUMNS:
        return Sheet("", (name, *labels), tuple((key, *(each.get(key, NONE) for each in values)) for key in keys))
    said = {}
    for key in keys:
        having: dict[str, list[str]] = {}
        for each, label in zip(values, labels, strict=True):
            if key in each:
                having.setdefault(each[key], []).append(label)
        common = sorted(having.items(), key=lambda item: -len(item[1]))
        said[key] = "; ".join(f"{value} ({', '.join(own)})" for value, own in common)
    return said
