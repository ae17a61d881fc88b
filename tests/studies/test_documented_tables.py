"""The table that is written by hand holds what was measured."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STREAMS = ("cifar100-10x10", "cifar100-20x5", "cifar100-50x2", "cub200-10x20", "cub200-50x4")
ROWS = (
    *("clare", "clare-plus", "linear-plus-head", "ranpac", "ranpac-plus-blocks"),
    *("aper-adapter-plus-head", "joint-plus-head"),
)


@pytest.fixture(scope="session")
def table(script: Callable[[str], ModuleType]) -> Any:
    """Return the table of all results."""
    module = script("result_table")
    return module.read_table((ROOT / "studies/vits14-112" / module.TABLE).read_text())


@pytest.mark.parametrize("stream", STREAMS)
def test_what_clare_plus_reaches(table: Any, study: Any, stream: str) -> None:
    entries = [table.find(stream, row) for row in ROWS]
    cells = [f"{100 * entry.spread('final_accuracy', [1993]).mean:.1f}" if entry else "-" for entry in entries]
    assert cells[0] != "-"
    line = f"| {study.titles[stream]} | {' | '.join(cells)} |\n"
    assert line in (ROOT / "docs/methods/clare-plus.md").read_text()


GAIN = ROOT / "studies/vits14-112/gain"
COLUMNS = ("cub200-50x4", "cifar100-50x2")


def measured_gain(stream: str, regime: str) -> str:
    """Return the cell of a stream and regime: each accuracy, and the rate where something was trained."""
    found = [json.loads(path.read_text()) for path in sorted((GAIN / stream / regime).glob("*.json"))]
    cells = []
    for one in sorted(found, key=lambda result: float(result["rate"])):
        assert (one["stream"], one["regime"], one["evaluate_on"]) == (stream, regime, "validation")
        cells.append(f"{100 * one['final_accuracy']:.1f}" + (f" ({one['rate']:g})" if one["rate"] else ""))
    return ", ".join(cells) or "-"


def test_what_training_can_gain() -> None:
    text = (GAIN / "README.md").read_text()
    rows = re.findall(r"^\| .*\(`([a-z-]+)`\) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == 7
    for regime, *cells in rows:
        assert cells == [measured_gain(stream, regime) for stream in COLUMNS], regime


def test_what_the_papers_open_points_are_worth(table: Any) -> None:
    section = (ROOT / "docs/method.md").read_text().split("## Open in the text")[1].split("\n## ")[0]
    num_rows = 0
    for row in filter(lambda line: line.startswith("| `"), section.splitlines()):
        worth = row.split("|")[-2]
        named = [each if each.startswith("clare") else f"clare-trained{each}" for each in NAMED.findall(worth)]
        lines = [line for line in table.lines if any(fits(line["row"], name) for name in [*named, "clare"])]
        known = {f"{100 * share:.1f}" for line in lines for share in shares(line)}
        figures = re.findall(r"(?<![\w.])\d+\.\d(?!\d)", worth)
        if named:
            num_rows += 1
            assert figures
            assert set(figures) <= known, row
    assert num_rows >= 8


NAMED = re.compile(r"`((?:clare|-seen)[\w.…-]*)`")


def fits(row: str, name: str) -> bool:
    """Whether a row has a name, of which the end may be left out."""
    return row.startswith(name[:-1]) if name.endswith("…") else row == name


def shares(line: Any) -> list[float]:
    """Return the accuracies of a run after each task, and the share of the coordinates that it claimed."""
    return [line.number("final_accuracy"), line.number("capacity_used") or 0.0, *line.numbers("seen_accuracy")]
