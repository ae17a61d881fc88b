"""The table that is written by hand holds what was measured."""

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
