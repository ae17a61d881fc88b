"""Write all that is made from the study's results: make results.

results.csv and intervals.csv here, docs/results.md and docs/choosing.md, their plots, docs/results_table.html,
docs/compare_quickdraw.md, the README's summary, and notes.md here. Sentences stand in text/; {STREAM|ROW|final} and
{STREAM|ROW - ROW|final} in them are filled in from the results, {validation|STREAM|ROW|final} from validation images
and {drift|STREAM|ROW|STATE} from drift/ and views/.
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from judge import RULE, Claim, judge_claims
from result_differences import KEPT, Differences, open_differences
from result_files import StoredRun, read_result
from result_pages import (
    choices_on,
    claims_sheet,
    draw_choices,
    draw_stream,
    plain_entries,
    provenance,
    sortable_page,
    stream_sheet,
    streams_of,
    summary_sheets,
)
from result_table import TABLE, Entry, Table, make_table, read_table
from study import HOME, ROOT, Study, read_study
from tuning_tables import tuning_sheets

from clare.errors import ClareError, RunError, nearest
from clare.files import write_text
from clare.report.groups import rank
from clare.report.standings import DEFINITIONS, standing_sheets
from clare.report.tables import percent, to_markdown

START, END = "<!-- results:start -->", "<!-- results:end -->"
NOTICE = "<!-- Written by `make results`; edit studies/vits14-112/text/, not this page. -->"
COMPARED = "quickdraw-20x10"
WIDTH = 120
FIGURES = {"final": "final_accuracy", "average": "average_accuracy", "forgetting": "forgetting"}
MEASURED = ("drift", "views")
COSTS = "_costs"


@dataclass(frozen=True)
class Results:
    """The study and what was measured."""

    home: Path
    study: Study
    table: Table
    differences: Differences
    claims: Sequence[Claim]


def read_all(home: Path) -> Results:
    """Read the results below a folder and judge the claims."""
    study = read_study()
    table = read_table(make_table(home, study))
    differences = open_differences(home, table)
    return Results(home, study, table, differences, judge_claims(HOME / "claims.toml", study, differences))


def render(results: Results, root: Path) -> dict[Path, str]:
    """Return every page, by its path, as the results make it."""
    docs, home, table = root / "docs", results.home, results.table
    pages = {
        docs / "results.md": _results_page(results),
        docs / "choosing.md": _page(results, "choosing.md", {"streams": "\n\n".join(_choosing_parts(results))}),
        docs / "results_table.html": sortable_page(table, results.study, HOME / "table.html"),
        home / "notes.md": _page(results, "notes.md", {"tuning": _tuning(home)}),
    }
    if plain_entries(table, results.study, COMPARED):
        pages[docs / "compare_quickdraw.md"] = _compare_page(results)
    readme = root / "README.md"
    text = readme.read_text() if readme.is_file() else ""
    if START in text and END in text:
        before, after = text.partition(START)[0], text.partition(END)[2]
        pages[readme] = f"{before}{START}\n{_summary(results)}\n{END}{after}"
    pages[home / TABLE] = make_table(home, results.study)
    # Last: only now is it known which intervals were asked for.
    pages[home / KEPT] = results.differences.kept()
    return pages


def draw(results: Results, root: Path) -> dict[Path, str]:
    """Return every plot, by its path, as SVG."""
    table, study = results.table, results.study
    drawn = [stream for stream in streams_of(table, study) if plain_entries(table, study, stream)]
    plots = {root / "docs" / plot_of(stream): draw_stream(table, study, stream) for stream in drawn}
    return plots | {root / "docs" / plot_of(stream, COSTS): draw_choices(table, study, stream) for stream in drawn}


def plot_of(stream: str, kind: str = "") -> str:
    """Return the path of a stream's plot of a kind from docs/."""
    return f"images/results_{stream}{kind}.svg"


def _results_page(results: Results) -> str:
    """The page of the claims, with one table and one figure for each stream."""
    claims = to_markdown(claims_sheet(results.claims, results.study)).split("\n", 2)[2].replace("---:", ":---")
    parts = {"claims": f"{_wrapped(RULE)}\n\n{claims.strip()}", "streams": "\n\n".join(_stream_parts(results))}
    return _page(results, "results.md", parts)


def _stream_parts(results: Results) -> list[str]:
    """The sections of the streams, but for the one that has a page of its own."""
    parts = []
    for stream in streams_of(results.table, results.study):
        if stream != COMPARED and plain_entries(results.table, results.study, stream):
            title = results.study.titles[stream]
            table = to_markdown(stream_sheet(stream, results.study, results.differences)).split("\n", 2)[2]
            told = _wrapped(provenance(results.table, stream))
            figure = f"![Accuracy over all classes seen so far: {title}]({plot_of(stream)})"
            parts.append(f"## {title}\n\n{told}\n\n{figure}\n\n{table.strip()}")
    return parts


def _choosing_parts(results: Results) -> list[str]:
    """A picture for each stream of what its methods reach and cost."""
    parts = []
    for stream in streams_of(results.table, results.study):
        if choices := choices_on(results.table, results.study, stream):
            title, heavy = results.study.titles[stream], [each.label for each in choices if each.is_heavy]
            told = (
                f"Hollow, since they keep more than the training images would take: {', '.join(heavy)}."
                if heavy
                else ""
            )
            picture = f"![Final accuracy against numbers stored, passes and time: {title}]({plot_of(stream, COSTS)})"
            parts += [f"## {title}", picture, *filter(None, [_wrapped(told)])]
    return parts


def _compare_page(results: Results) -> str:
    """The table of `clare compare` from the results of one stream."""
    entries = plain_entries(results.table, results.study, COMPARED)
    runs = [_read(results, entry, seed) for entry in entries for seed in entry.seeds]
    runs.sort(key=lambda run: (run.method != "clare", run.method, run.seed))
    methods = list(dict.fromkeys(run.method for run in runs))
    seeds = sorted({run.seed for run in runs})
    parts = [
        NOTICE,
        f"# Methods compared on {COMPARED}",
        f"```\nclare compare {COMPARED} --methods {','.join(methods)} --seeds {','.join(map(str, seeds))}\n```",
        f"{len(runs)} runs; each run's JSON is below `studies/vits14-112/results/{COMPARED}/`.",
        *(to_markdown(sheet) for sheet in standing_sheets(rank(runs))),
        f"![Accuracy over all classes seen so far]({plot_of(COMPARED)})",
        _wrapped(DEFINITIONS),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _read(results: Results, entry: Entry, seed: int) -> StoredRun:
    """Read one run of a row on test images; what the stream's images take was not recorded with it."""
    run = read_result(results.home / "results" / entry.stream / entry.row / f"{seed}.json")
    size = results.study.training_bytes[entry.stream]
    return replace(run, start=run.start.model_copy(update={"training_bytes": size}))


def _summary(results: Results) -> str:
    """The block for the README."""
    told = [to_markdown(sheet).strip() for sheet in summary_sheets(results.table, results.study)]
    return "\n\n".join(
        [*told, "Figures, intervals, variants and how settings were chosen: [results](docs/results.md)."]
    )


def _tuning(home: Path) -> str:
    """The trials that chose the settings."""
    return "\n".join(to_markdown(sheet) for sheet in tuning_sheets(home / "tuning")).strip()


def _page(results: Results, name: str, parts: dict[str, str]) -> str:
    """Fill a page of text/ with its parts and its figures."""
    text = _fill((HOME / "text" / name).read_text(), results)
    for mark, part in parts.items():
        text = text.replace(f"{{{mark}}}", part)
    return f"{NOTICE}\n\n{text}"


def _wrapped(text: str) -> str:
    """Break a paragraph into lines."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _fill(text: str, results: Results) -> str:
    """Put figures in the place of what asks for them."""
    pattern = r"\{(?:(validation|drift|views)\|)?([^{}|]+)\|([^{}|]+)\|([^{}|]+)\}"
    return re.sub(pattern, lambda found: _figure(results, *found.groups()), text)


def _figure(results: Results, kind: str | None, stream: str, row: str, figure: str) -> str:
    """Return one figure in percent, or a difference of two rows in points."""
    asked = f"text/ asks for '{stream}|{row}|{figure}'"
    if kind in MEASURED:
        return _measured(results.home / kind / stream / row, figure, asked)
    names = row.split(" - ")
    known = {entry.row: entry for entry in results.table.entries(kind or "test", stream)}
    missing = [name for name in names if name not in known]
    if missing:
        raise RunError(f"{asked}, but '{missing[0]}'{nearest(missing[0], known)} was not run; collect it or correct it")
    if figure not in FIGURES or len(names) > 2 or (len(names) == 2 and figure != "final"):
        raise RunError(f"{asked}; write one of {', '.join(FIGURES)}")
    if len(names) == 2:
        return str(results.differences.between(known[names[0]], known[names[1]]) or "(no shared seed)")
    return percent(known[row].spread(FIGURES[figure]).mean)


def _measured(folder: Path, state: str, asked: str) -> str:
    """Return what was measured of one finished run."""
    try:
        (path,) = folder.glob("*.json")
        return percent(json.loads(path.read_bytes())["final_accuracy"][state])
    except (ValueError, KeyError):
        raise RunError(f"{asked}, which was not measured; measure it or correct it") from None


def write(results: Results, root: Path, say: Callable[[str], None]) -> None:
    """Write all pages and plots, and remove plots of streams that are no more."""
    written = {**render(results, root), **draw(results, root)}
    for path, text in written.items():
        write_text(path, text)
        say(str(path.relative_to(root)))
    for old in (root / "docs" / "images").glob("results_*.svg"):
        if old not in written:
            old.unlink()


def main(words: Sequence[str]) -> str | None:
    """Write everything, and return why not where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder, into which pages are written")
    parser.add_argument("--home", type=Path, default=HOME, help="the folder with the results")
    arguments = parser.parse_args(words)
    try:
        write(read_all(arguments.home), arguments.root, print)
    except ClareError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
