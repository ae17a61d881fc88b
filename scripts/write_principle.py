"""Write the measured tables of pools, budgets, penalties and trust into docs/: python scripts/write_principle.py."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def read(name: str) -> dict[str, Any]:
    """Read a result."""
    result: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return result


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def points(found: dict[str, float], factor: float = 1) -> str:
    """Return a difference in points with its interval."""
    return f"{factor * found['difference']:+.1f} ({factor * found['low']:+.1f} to {factor * found['high']:+.1f})"


def pool_table(name: str) -> str:
    """Return what becomes of a pool with and without expansion."""
    result = read(name)
    beside = {(each["expand"], each["num_tasks"]): each for each in result["beside_none"]}
    rows = []
    for row in result["rows"]:
        key = (row["expand"], row["num_tasks"])
        least = row["least_budget_from_100"] if row["num_tasks"] > 100 else None
        rows.append(
            [
                f"`{row['expand']}`",
                f"{row['num_tasks']:,}",
                row["bottleneck"],
                f"{row['median_budget_of_first_50']:,.0f}",
                "" if least is None else f"{least:,}",
                f"{row['num_stored']:,}",
                f"{row['images_per_core_second']:,.0f}",
                f"{100 * row['accuracy']:.1f}",
                points(beside[key], 100) if key in beside else "",
            ]
        )
    head = ["`method.expand`", "tasks", "hidden units", "median claim of tasks 1 to 50", "least claim from task 100 on"]
    head += ["stored numbers", "images/s of a core", "accuracy, %", "minus `none`"]
    return table(head, rows)


def many_tasks_table(name: str) -> str:
    """Return what one more task costs after so many."""
    result = read(name)
    marks = list(next(iter(result["seconds"].values())))
    rows = [[part, *(f"{1000 * row[mark]:,.2f}" for mark in marks)] for part, row in result["seconds"].items()]
    return table(["one more task after", *(f"{int(mark):,}" for mark in marks)], rows)


def budgets_table(name: str) -> str:
    """Return budgets by need beside the fixed share."""
    found = read(name)["found"]
    rows = []
    for run in found["runs"]:
        beside = found["beside"].get(run["variant"])
        rows.append(
            [
                f"`{run['variant']}`",
                f"{run['accuracy']:.1f}",
                points(beside) if beside else "",
                f"{run['num_free'] / run['num_coordinates']:.1%}".replace("%", " %"),
                "" if run["mean_part_needed"] is None else f"{run['mean_part_needed']:.2f}",
                "" if run["mean_likeness"] is None else f"{run['mean_likeness']:.2f}",
            ]
        )
    head = ["`method.budget`", "accuracy, %", "minus `share`", "coordinates left", "mean need", "mean likeness"]
    return table(head, rows)


def penalties_table(name: str) -> str:
    """Return forms of the penalty beside none."""
    found = read(name)["found"]
    rows = []
    for run in found["runs"]:
        beside = found["beside"].get(run["variant"])
        form, _, weight = run["variant"].partition(", ")
        unmoved = f"{run['mean_part_unmoved_in_stage_1']:.1%}".replace("%", " %")
        rows.append(
            [
                f"`{form}`",
                weight,
                f"{run['accuracy']:.1f}",
                points(beside) if beside else "",
                unmoved,
                sum(run["claims"]),
            ]
        )
    head = ["`method.penalty`", "λ", "accuracy, %", "minus none", "unmoved in Stage 1", "claimed"]
    return table(head, rows)


def open_table(name: str) -> str:
    """Return what the text leaves open beside the default, as means over seeds."""
    found = read(name)["found"]
    rows = []
    for variant in found["variants"]:
        accuracies = [run["accuracy"] for run in found["runs"] if run["variant"] == variant]
        beside = found["beside"].get(variant)
        rows.append([variant, f"{sum(accuracies) / len(accuracies):.1f}", points(beside) if beside else ""])
    return table(["", "accuracy, %", f"minus {next(iter(found['variants']))}"], rows)


def texts_table(name: str) -> str:
    """Return how the ways of learning texts end, as means over seeds."""
    rows = []
    for way, found in read(name)["ways"].items():
        ends = [run["accuracies"][-1] for run in found["runs"]]
        tried = "; ".join(f"{float(rate):g}: {accuracy:.1f}" for rate, accuracy in found["trials"].items())
        rows.append([way, f"{sum(ends) / len(ends):.1f}", f"{found['rate']:g}" if tried else "", tried])
    return table(["", "accuracy after ten tasks, %", "rate", "rates tried, three tasks, validation texts"], rows)


def trust_table(name: str) -> str:
    """Return what a bad task costs the others."""
    result = read(name)["found"]
    rows = []
    for row in result["rows"]:
        length = row["lengths"][result["bad_task"]]
        rows.append(
            [
                row["task"],
                f"{row['trust']:g}",
                f"{row['rest']:.1f}",
                f"{row['rest_among_themselves']:.1f}",
                "" if length is None else f"{length:g}",
            ]
        )
    head = ["the second task is learnt", "`method.trust`", "the rest, %", "among their own classes", "part of its way"]
    return table(head, rows)


def far_table(name: str) -> str:
    """Return how many far pictures are named rightly with and without the trust region."""
    rows = []
    for run in read(name)["runs"]:
        (before,), (after, new) = run["right"]
        cells = [f"{count} of {run['of']}" for count in (before, after, new)]
        rows.append([run["settings"].get("trust", "0.05 (default)"), *cells])
    return table(["`trust`", "first lesson, before the second", "and after it", "second lesson"], rows)


PAGES: dict[str, dict[str, tuple[str, Callable[[str], str]]]] = {
    "long_streams.md": {
        "pool 300": ("pool_300", pool_table),
        "pool 1000": ("pool_1000", pool_table),
        "many tasks": ("many_tasks", many_tasks_table),
        "need": ("clare_budgets", budgets_table),
        "trust": ("clare_trust", trust_table),
        "far": ("far_pictures", far_table),
    },
    "allocator.md": {"texts": ("allocator_text", texts_table)},
    "method.md": {
        "penalties": ("clare_penalties", penalties_table),
        "penalties long": ("clare_penalties_long", penalties_table),
        "open": ("clare_open", open_table),
        "open rows": ("clare_open_rows", open_table),
    },
}
"""Each mark's result and what makes its table."""
NOTHING = "Not measured yet."


def written(page: str) -> str:
    """Return a page with each table between its marks."""
    text = (ROOT / "docs" / page).read_text()
    for mark, (name, make) in PAGES[page].items():
        found = make(name) if (ROOT / "results" / f"{name}.json").exists() else NOTHING
        pattern = rf"<!-- {mark} -->.*?<!-- end -->"
        text, num_found = re.subn(pattern, f"<!-- {mark} -->\n{found}\n<!-- end -->", text, flags=re.DOTALL)
        assert num_found == 1, mark
    return text


def main() -> None:
    """Write every page."""
    for page in PAGES:
        (ROOT / "docs" / page).write_text(written(page))


if __name__ == "__main__":
    main()
