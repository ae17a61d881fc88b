"""The pages of methods say what it was worth to do as their authors' code does."""

import json
import re
from pathlib import Path

import pytest

from clare.methods import METHODS

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "results/as_published.json").read_bytes())["found"]
SWITCHED = [name for name in METHODS if "as_published" in METHODS.get(name).settings_type.model_fields]


def test_every_switch_was_measured() -> None:
    assert len(SWITCHED) == 7
    assert set(SWITCHED) == set(FOUND)


@pytest.mark.parametrize("method", SWITCHED)
def test_the_page_says_what_was_measured(method: str) -> None:
    page = " ".join((ROOT / f"docs/methods/{method}.md").read_text(encoding="utf-8").split())
    found = FOUND[method]
    ((published,), (paper,)) = found["as_published"], found["as_the_paper_says"]
    interval = [re.sub(r"^-0\.0$", "+0.0", f"{value:+.1f}") for value in found["as_published_minus_paper"].values()]
    said = "ended at {:.1f} % and the default at {:.1f} %: {} [{}, {}] points".format(published, paper, *interval)
    assert said in page
    assert "On photographs it was not measured." in page
