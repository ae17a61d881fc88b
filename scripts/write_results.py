"""Write docs/results.md, its plots, docs/compare_quickdraw.md and the README's summary from results/: make results.

Figures come from results/runs, results/validation and results/tuning alone; the sentences between the tables stand in
docs/results_notes.toml, where {PRESET|LABEL|final} is filled in from the results.
"""

import argparse
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from result_boards import OURS, Board, Kind, difference, make_boards
from result_claims import RULE, VERDICTS, Claim, make_claims, tally
from result_files import read_results
from result_tables import head_sheets, provenance, tuning_sheets, validation_sheet, variant_sheets

from clare.errors import ClareError, RunError, nearest
from clare.files import write_text
from clare.report.charts import make_charts
from clare.report.groups import rank
from clare.report.looks import looks_of
from clare.report.plots import chart_figure, to_svg
from clare.report.standings import DEFINITIONS, standing_sheets
from clare.report.tables import NONE, Sheet, percent, to_markdown

START, END = "<!-- results:start -->", "<!-- results:end -->"
NOTICE = "<!-- Written by `make results` from results/; edit docs/results_notes.toml, not this page. -->"
COMPARED = "quickdraw-20x10"
EMBEDDED = "quickdraw"
"""The drawings that come with the package: a demonstration, which the README does not show as evidence."""
MEANING = (
    "Percent and points; mean ± standard deviation over seeds. Ā: the mean of the accuracies over all seen classes "
    "after each task. A_T: the accuracy over all classes after the last task. Forgetting: how far a task has fallen "
    "from its best accuracy by the end. New task: the accuracy on a task directly after it. A difference is in A_T "
    "over the seeds that both have, [its 95 % interval under resampling of the test images within each class], (by "
    "seed); the interval is the closed form of the paired bootstrap and does not cover the choice of the seed. "
    "Trained, stored and passes are defined in [metrics](metrics.md). Methods are compared at equal heads."
)
WIDTH = 120
FIGURES = {"final": "final_accuracy", "average": "average_accuracy", "forgetting": "forgetting"}


def render(root: Path) -> dict[str, str]:
    """Return every page, by its path, as the results make it."""
    boards = make_boards(read_results(root / "results" / "runs"))
    claims = make_claims(boards)
    notes = _read_notes(root / "docs" / "results_notes.toml", boards)
    pages = {"docs/results.md": _results_page(root, boards, claims, notes)}
    compared = next((board for board in boards if board.preset == COMPARED), None)
    if compared and _own_kinds(compared):
        pages["docs/compare_quickdraw.md"] = _compare_page(compared)
    readme = root / "README.md"
    text = readme.read_text() if readme.is_file() else ""
    if START in text and END in text:
        before, after = text.partition(START)[0], text.partition(END)[2]
        pages["README.md"] = f"{before}{START}\n{_summary(boards, claims)}\n{END}{after}"
    return pages


def draw(root: Path) -> dict[str, str]:
    """Return every plot, by its path, as SVG."""
    boards = make_boards(read_results(root / "results" / "runs"))
    return {f"docs/{_plot_of(board)}": _curves(board) for board in boards if _own_kinds(board)}


def _results_page(root: Path, boards: Sequence[Board], claims: Sequence[Claim], notes: Mapping[str, Any]) -> str:
    """The page of all results."""
    parts = [NOTICE, "# Results", notes["intro"]]
    if not boards:
        parts.append("No run has been collected yet; `scripts/collect_results.py` brings runs into `results/`.")
    parts += ["## Claims", _wrapped(RULE), *_claim_parts(claims, notes["claims"])]
    for board in boards:
        parts += _board_parts(board, notes["presets"].get(board.preset, ""))
    validated = make_boards(read_results(root / "results" / "validation"))
    tuned = list(tuning_sheets(root / "results" / "tuning"))
    if validated or tuned:
        parts += ["## How the settings were chosen", notes["tuning"]]
        parts += [to_markdown(sheet) for sheet in tuned]
        parts += [to_markdown(validation_sheet(board)) for board in validated]
    parts += ["## What the figures mean", _wrapped(MEANING), notes["end"]]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _claim_parts(claims: Sequence[Claim], notes: Mapping[str, str]) -> Iterator[str]:
    """The claims of the paper, of ours, and what was aimed at, each with the figures that decide it."""
    titles = {"paper": "What the paper claims", "ours": "What we claim", "aim": "What we aimed at"}
    for whose, title in titles.items():
        rows = tuple(
            (claim.text if index == 0 else "", finding.where, finding.figures or NONE, finding.verdict)
            for claim in claims
            if claim.whose == whose
            for index, finding in enumerate(claim.findings)
        )
        sheet = Sheet(title, ("Claim", "Stream", "Figures: A_T and points", "Verdict"), rows)
        yield to_markdown(sheet).replace("---:", ":---")
        yield from (notes.get(claim.key, "") for claim in claims if claim.whose == whose)


def _board_parts(board: Board, note: str) -> Iterator[str]:
    """The section of one preset."""
    yield f"## {board.preset}"
    told = f"{provenance(board)} Figures and the command that repeats each run: `results/runs/{board.preset}/`."
    yield _wrapped(told)
    yield note
    if _own_kinds(board):
        yield f"![Accuracy over all classes seen so far on {board.preset}]({_plot_of(board)})"
    yield from map(to_markdown, head_sheets(board))
    yield from map(to_markdown, variant_sheets(board))


def _compare_page(board: Board) -> str:
    """The table of `clare compare` from the results of one preset."""
    board = replace(board, kinds=tuple(_own_kinds(board)))
    runs = [run for kind in board.kinds for run in kind.runs]
    methods = sorted({run.method for run in runs}, key=lambda name: (name != "clare", name))
    seeds = sorted({run.seed for run in runs})
    command = f"clare compare {board.preset} --methods {','.join(methods)} --seeds {','.join(map(str, seeds))}"
    parts = [
        NOTICE,
        f"# Methods compared on {board.preset}",
        f"```\n{command}\n```",
        _wrapped(f"{provenance(board)} Each run's JSON is in `results/runs/{board.preset}/`."),
        *(to_markdown(sheet) for sheet in standing_sheets(rank(runs))),
        f"![Accuracy over all classes seen so far]({_plot_of(board)})",
        _wrapped(DEFINITIONS),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _summary(boards: Sequence[Board], claims: Sequence[Claim]) -> str:
    """The block for the README: final accuracies by stream, and how the claims fared."""
    names = ("clare", "clare-plus", "ranpac", "simplecil", "joint")
    rows = []
    real = [board for board in boards if not board.base.startswith(EMBEDDED)]
    for board in real:
        others = [kind for kind in board.kinds if not kind.changes and kind.method not in names]
        best = max(others, key=lambda kind: kind.final, default=None)
        other = NONE if best is None else f"{percent(best.final)} ({best.method})"
        cells = [_final(board.find(name)) for name in names]
        rows.append((board.preset, *cells[:3], other, *cells[3:]))
    header = ("A_T in percent", "clare", "clare-plus", "ranpac", "best of the others", "class means", "joint (bound)")
    verdicts = tuple((claim.text, *(str(number) for number in tally(claim).values())) for claim in claims)
    sheets = [
        Sheet(
            "Final accuracy over all classes, each method with the head that the preset gives it", header, tuple(rows)
        ),
        Sheet("How often each claim was found or refuted on real streams", ("Claim", *VERDICTS), verdicts),
    ]
    told = [to_markdown(sheet).strip() for sheet in sheets]
    link = "Figures, intervals, variants and how settings were chosen: [results](docs/results.md)."
    return "\n\n".join([*(told if real else []), link])


def _final(kind: Kind | None) -> str:
    """The final accuracy of a kind."""
    return NONE if kind is None else percent(kind.final)


def _wrapped(text: str) -> str:
    """Break a paragraph into lines."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _own_kinds(board: Board) -> list[Kind]:
    """Return the methods with the preset's own settings, the best first."""
    return sorted((kind for kind in board.kinds if not kind.changes), key=lambda kind: -kind.final)


def _plot_of(board: Board) -> str:
    """Return the path of a board's plot from docs/."""
    return f"images/results_{re.sub(r'[^A-Za-z0-9-]+', '_', board.preset)}.svg"


def _curves(board: Board) -> str:
    """Draw the accuracy over all seen classes of the methods with the preset's own settings."""
    groups = list(_own_kinds(board))
    chart = next(chart for chart in make_charts(groups) if chart.name == "accuracy")
    looks = looks_of(groups)
    strong = {label: replace(look, is_strong=label in OURS) for label, look in looks.items()}
    return to_svg(chart_figure(chart, strong), board.preset).decode()


def _read_notes(path: Path, boards: Sequence[Board]) -> dict[str, Any]:
    """Read the sentences of the page and fill their figures in."""
    try:
        notes = tomllib.loads(path.read_text()) if path.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path.name} is no valid TOML ({error}); correct it") from None
    known: dict[str, Any] = {"intro": "", "end": "", "tuning": "", "presets": {}, "claims": {}}
    for key, value in notes.items():
        if key not in known or not isinstance(value, type(known[key])):
            raise RunError(f"{path.name} has '{key}'{nearest(key, known)}; it holds {', '.join(known)}")
        if isinstance(value, dict):
            known[key] = {name: _fill(text, boards) for name, text in value.items()}
        else:
            known[key] = _fill(value, boards)
    return known


def _fill(text: str, boards: Sequence[Board]) -> str:
    """Put the figures of results in the place of {PRESET|LABEL|FIGURE} and {PRESET|LABEL - LABEL|final}."""
    return re.sub(r"\{([^{}|]+)\|([^{}|]+)\|([^{}|]+)\}", lambda found: _figure(boards, *found.groups()), text)


def _figure(boards: Sequence[Board], preset: str, label: str, figure: str) -> str:
    """Return one figure in percent, or a difference of two kinds in points."""
    kinds = {kind.label: kind for board in boards if board.preset == preset for kind in board.kinds}
    labels = label.split(" - ")
    missing = [name for name in labels if name not in kinds]
    if missing:
        raise RunError(
            f"results_notes.toml asks for '{missing[0]}' of '{preset}'{nearest(missing[0], kinds)}, which is not in "
            f"results/runs; collect it or correct the note"
        )
    if figure not in FIGURES or len(labels) > 2 or (len(labels) == 2 and figure != "final"):
        raise RunError(f"results_notes.toml asks for '{label}|{figure}'; write one of {', '.join(FIGURES)}")
    if len(labels) == 2:
        return str(difference(kinds[labels[0]], kinds[labels[1]]) or "(no shared seed)")
    return percent(dict(kinds[label].figures)[FIGURES[figure]].mean)  # type: ignore[index]


def main(words: Sequence[str]) -> str | None:
    """Write all pages and plots, and return why not where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the project's folder")
    root = parser.parse_args(words).root
    try:
        written = {**render(root), **draw(root)}
        for path, text in written.items():
            write_text(root / path, text)
    except ClareError as error:
        return str(error)
    for old in (root / "docs" / "images").glob("results_*.svg"):
        if str(old.relative_to(root)) not in written:
            old.unlink()
    print("\n".join(written))
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
