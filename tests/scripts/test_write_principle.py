"""The pages of the pool, of budgets, penalties and trust say what is kept in results/, and nothing else."""

from pathlib import Path

import pytest

from clare.registry import load_file

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["allocator.md", "long_streams.md", "method.md"])
def test_the_tables_are_those_of_the_results(page: str) -> None:
    script = load_file(ROOT / "scripts" / "write_principle.py", "which a test needs")
    assert page in script.PAGES
    assert (ROOT / "docs" / page).read_text() == script.written(page), "out of date; run `make results`"


def test_the_table_of_open_points_says_what_was_measured() -> None:
    script = load_file(ROOT / "scripts" / "write_principle.py", "which a test needs")
    lines = (ROOT / "docs" / "method.md").read_text().splitlines()
    text = "".join(line for line in lines if "#open-points-on-drawings" in line)
    for name in ("clare_open", "clare_open_rows"):
        for variant, beside in script.read(name)["found"]["beside"].items():
            assert script.points(beside) in text, f"{variant} in a row of docs/method.md"
