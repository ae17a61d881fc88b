"""The page of speed says of the tests on a GPU what was kept of them, and nothing beside it."""

import re
from pathlib import Path

from clare.registry import load_file

ROOT = Path(__file__).parents[2]


def test_the_page_tells_one_outcome_of_the_gpu_tests() -> None:
    performance = load_file(ROOT / "scripts" / "write_performance.py", "which a test needs")
    section = (ROOT / "docs/performance.md").read_text().split("## Tests that need a GPU\n")[1].split("\n## ")[0]
    told = re.search(r"<!-- gpu tests -->\n(.*)\n<!-- end -->", section, re.DOTALL)
    assert told
    assert told[1] == performance.gpu_tests_words(), "out of date; run `make results`"
    assert "fail" not in section.replace(told[0], "")
