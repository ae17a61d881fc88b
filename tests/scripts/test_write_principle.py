"""The pages of the pool, of budgets, penalties and trust say what is kept in results/, and nothing else."""

from pathlib import Path

import pytest

from clare.registry import load_file

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["long_streams.md", "method.md"])
def test_the_tables_are_those_of_the_results(page: str) -> None:
    script = load_file(ROOT / "scripts" / "write_principle.py", "which a test needs")
    assert page in script.PAGES
    assert (ROOT / "docs" / page).read_text() == script.written(page), "out of date; run `make results`"
