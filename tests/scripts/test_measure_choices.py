"""What a new model may be: that the rule, and the page, say no more than what was measured."""

import json
import operator
from pathlib import Path
from typing import Any

import pytest

from clare.registry import load_file

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "results" / "choices.json").read_text())["lines"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script, which needs its neighbours."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return load_file(ROOT / "scripts" / "measure_choices.py", "which measures what a new model may be")


def test_the_rule_is_what_was_measured(script: Any) -> None:
    measured = {tuple(line[key] for key in script.KEYS): line["accuracy"] for line in KEPT}
    assert set(measured) == {(*cell[:4], choice) for cell in script.CELLS for choice in cell[5]}

    def gain(data: str, choice: str, beside: str) -> float:
        """Return by how many points of all pictures asked about a choice was better."""
        cells = [cell for cell in script.CELLS if cell[0] == data and choice in cell[5]]
        asked = [num_classes * num_test for _, num_classes, _, _, num_test, _ in cells]
        apart = [measured[*cell[:4], choice] - measured[*cell[:4], beside] for cell in cells]
        return sum(map(operator.mul, asked, apart)) / sum(asked)

    assert gain("cub200", "three views", "one view") > 2
    assert abs(gain("cifar100", "three views", "one view")) < 1
    assert gain("drawings", "three views", "one view") < 0
    assert gain("cub200", "five views", "three views") < 0
    assert gain("cub200", "adapter", "three views") < 0
    assert gain("drawings", "adapter", "one view") < 0


def test_the_page_shows_what_was_kept(script: Any) -> None:
    assert script.table(KEPT) in (ROOT / "docs" / "own_pictures.md").read_text()
