"""The parts of the pages: the claims, a table and a figure for each stream, and one sortable page of everything."""

import html
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from judge import Claim
from result_differences import Difference, Differences
from result_table import Entry, Table
from study import Study

from clare.report.charts import Chart, Curve
from clare.report.choosing import Choice, choosing_figure
from clare.report.plots import COLOURS, MARKERS, Style, chart_figure, to_svg
from clare.report.standings import HEAVY, spread_percent
from clare.report.tables import NONE, Sheet, count, duration, percent

OURS = ("clare", "clare-plus")
BOUND = "joint"
EMBEDDED = "quickdraw"
"""The drawings that come with the package: a demonstration, which the README does not show as evidence."""
WHOSE = {"paper": "the paper", "ours": "ours", "aim": "an aim"}


def plain_entries(table: Table, study: Study, stream: str) -> list[Entry]:
    """Return the rows with the preset's own settings on a stream, the best first, the upper bound last."""
    entries = [entry for entry in table.entries("test", stream) if study.row(entry.row).is_plain]
    return sorted(entries, key=lambda entry: (entry.row == BOUND, -entry.final))


def claims_sheet(claims: Sequence[Claim], study: Study) -> Sheet:
    """The claims with what each stream says about them."""
    streams = list(dict.fromkeys(finding.stream for claim in claims for finding in claim.findings))
    rows = []
    for claim in claims:
        found = {finding.stream: finding for finding in claim.findings}
        cells = [
            f"{found[each].verdict}: {found[each].figures}".rstrip(": ") if each in found else "" for each in streams
        ]
        rows.append((claim.text, WHOSE[claim.whose], *cells))
    return Sheet("Claims", ("Claim", "Whose", *(study.titles[stream] for stream in streams)), tuple(rows))


def stream_sheet(stream: str, study: Study, differences: Differences) -> Sheet:
    """The methods on one stream with the preset's own settings, ranked by final accuracy."""
    entries = plain_entries(differences.table, study, stream)
    heavy = {choice.label for choice in choices_on(differences.table, study, stream) if choice.is_heavy}
    reference = differences.table.find(stream, OURS[0])
    rows = [(_name(entry), *_cells(entry, reference, differences, HEAVY * (entry.row in heavy))) for entry in entries]
    marked = frozenset(index for index, entry in enumerate(entries) if entry.row in OURS)
    header = ("Method", "Head", "Seeds", "Ā", "A_T", "Forgetting", f"A_T against {OURS[0]}", "Stored", "Passes", "Time")
    return Sheet(study.titles[stream], header, tuple(rows), marked)


def _name(entry: Entry) -> str:
    """A method; one that met all classes at once is no rival."""
    return f"{entry.row} (bound)" if entry.row == BOUND else entry.row


def _cells(entry: Entry, reference: Entry | None, differences: Differences, mark: str) -> tuple[str, ...]:
    """The figures of one method beside the reference, with a mark behind the numbers that it stores."""
    found = differences.between(entry, reference) if reference and reference.row != entry.row else None
    figures = [spread_percent(entry.spread(name)) for name in ("average_accuracy", "final_accuracy", "forgetting")]
    if entry.row == BOUND:
        # Over a single task the average is the final accuracy and nothing can be forgotten.
        figures = [NONE, figures[1], NONE]
    stored, *others = _costs(entry)
    return (entry["head"], str(len(entry.lines)), *figures, _against(found, reference), stored + mark, *others)


def _against(found: Difference | None, reference: Entry | None) -> str:
    """A difference, with the reference's accuracy over the shared seeds where these are not all of its own."""
    if found is None or reference is None:
        return NONE
    is_other = len(found.by_seed) < len(reference.lines)
    return f"{found} to {100 * found.theirs:.1f}" if is_other else str(found)


def _costs(entry: Entry) -> tuple[str, ...]:
    """What a row costs."""
    stored = entry["num_stored"]
    seconds = statistics.fmean(float(line["seconds"]) for line in entry.lines)
    return count(int(stored) if stored else None), entry["passes_per_image"] or NONE, duration(seconds)


def provenance(table: Table, stream: str) -> str:
    """Say on what, with what and when the runs of a stream were made, and of which commit."""
    lines = [line for entry in table.entries("test", stream) for line in entry.lines]
    devices = sorted({f"{line['device']} in {line['precision']}" for line in lines})
    versions = sorted({f"clare {line['clare']}, torch {line['torch']}" for line in lines})
    days = sorted({line["started"][:10] for line in lines})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    num_unknown = sum(not line["commit"] for line in lines)
    commits = f", {num_unknown} from before the commit was recorded" if num_unknown else ""
    return f"{len(lines)} runs on {'; '.join(devices)}, {'; '.join(versions)}, {when}{commits}."


def draw_stream(table: Table, study: Study, stream: str) -> str:
    """Draw the accuracy over all seen classes of the methods with the preset's own settings."""
    entries = plain_entries(table, study, stream)
    num_tasks = max(len(entry.lines[0].numbers("seen_accuracy")) for entry in entries)
    curves = tuple(_curve(entry, num_tasks) for entry in entries)
    chart = Chart("accuracy", "Incremental accuracy", "", "tasks learnt", "accuracy (%)", "percent", curves)
    styles = {entry.row: _style(place, entry.row) for place, entry in enumerate(entries)}
    return to_svg(chart_figure(chart, styles), stream).decode()


def choices_on(table: Table, study: Study, stream: str) -> list[Choice]:
    """What the methods with the preset's own settings reach on a stream, and what they cost."""
    found = []
    for entry in plain_entries(table, study, stream):
        stored, passes = entry["num_stored"], entry["passes_per_image"]
        if stored and passes:
            seconds = statistics.fmean(sum(line.numbers("learn_seconds")) for line in entry.lines)
            is_heavy = 4 * int(stored) > study.training_bytes[stream]
            found.append(Choice(_name(entry), 100 * entry.final, int(stored), int(passes), seconds, is_heavy))
    return found


def draw_choices(table: Table, study: Study, stream: str) -> str:
    """Draw what the methods reach on a stream against what they cost."""
    choices = choices_on(table, study, stream)
    styles = {choice.label: _style(place, choice.label) for place, choice in enumerate(choices)}
    figure = choosing_figure(choices, styles, training_bytes=study.training_bytes[stream])
    return to_svg(figure, f"{stream} costs").decode()


def _curve(entry: Entry, num_tasks: int) -> Curve:
    """The mean over seeds after each task; one that met all classes at once stands at the end."""
    rows = 100 * np.array([line.numbers("seen_accuracy") for line in entry.lines])
    places = range(num_tasks - rows.shape[1] + 1, num_tasks + 1)
    deviations = tuple(rows.std(axis=0, ddof=1).tolist()) if len(rows) > 1 else None
    return Curve(entry.row, tuple(map(float, places)), tuple(rows.mean(axis=0).tolist()), deviations)


def _style(place: int, row: str) -> Style:
    """How a row is drawn: ours strong and in the first colours."""
    if row in OURS:
        return Style(OURS.index(row), 0, OURS.index(row), True)
    return Style(len(OURS) + place % (len(COLOURS) - len(OURS)), 1 + place % (len(MARKERS) - 1), place // 5 % 4, False)


SORTED = {
    "Stream": None,
    "Row": None,
    "Images": None,
    "Head": None,
    "Seeds": None,
    "Ā": "average_accuracy",
    "A_T": "final_accuracy",
    "Forgetting": "forgetting",
    "New task": "new_task_accuracy",
    "Adapter used": "capacity_used",
    "Trained": "num_trained",
    "Stored": "num_stored",
    "Passes": "passes_per_image",
    "Time (s)": "seconds",
    "Id": None,
}
PERCENT = ("average_accuracy", "final_accuracy", "forgetting", "new_task_accuracy", "capacity_used")


def sortable_page(table: Table, study: Study, template: Path) -> str:
    """All rows on all streams, on test images and on validation images, as one page without network."""
    rows = [
        list(_sortable(entry, images, study)) for images in ("test", "validation") for entry in table.entries(images)
    ]
    text = template.read_text().replace("{header}", "".join(f"<th>{html.escape(name)}</th>" for name in SORTED))
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return text.replace("{rows}", f"[\n{lines}\n]".replace("</", "<\\/"))


def _sortable(entry: Entry, images: str, study: Study) -> Iterator[str | float | None]:
    """The cells of one row."""
    told = (study.titles[entry.stream], study.row(entry.row).title, images, entry["head"], len(entry.lines))
    yield from told
    for column in filter(None, SORTED.values()):
        mean = entry.spread(column).mean
        digits = 1 if column in PERCENT else 0
        yield None if mean is None else round(100 * mean if column in PERCENT else mean, digits)
    yield f"{entry.stream}/{entry.row}"


def summary_sheets(table: Table, study: Study) -> list[Sheet]:
    """The block for the README: final accuracies by stream."""
    names = ("clare", "clare-plus", "ranpac", "simplecil", "joint")
    rows = []
    for stream in streams_of(table, study):
        plain = {entry.row: entry for entry in plain_entries(table, study, stream)}
        if stream.startswith(EMBEDDED) or not plain:
            continue
        best = max((entry for row, entry in plain.items() if row not in names), key=lambda e: e.final, default=None)
        other = NONE if best is None else f"{percent(best.final)} ({best.row})"
        cells = [percent(plain[name].final) if name in plain else NONE for name in names]
        rows.append((study.titles[stream], *cells[:3], other, *cells[3:]))
    kinds = ("clare", "clare-plus", "ranpac", "best of the others", "simplecil (class means)", "joint (all at once)")
    header = ("Final accuracy (%)", *kinds)
    title = "Final accuracy over all classes, each method with the head that the preset gives it"
    return [Sheet(title, header, tuple(rows))] if rows else []


def streams_of(table: Table, study: Study) -> list[str]:
    """The streams on whose test images something was run, in the order of the study."""
    measured = {line["stream"] for line in table.lines if line["images"] == "test"}
    return [stream for stream in study.titles if stream in measured]
