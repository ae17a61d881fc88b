"""Every field that is written stands on the page of what a run writes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_runs import diagnose, summary_of_runs, write_run

import clare
from clare.record import EVENTS, Event
from clare.report.record import find_runs
from clare.report.standings import Failure

ROOT = Path(clare.__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "records.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE))


def fields_of(entry: dict[str, Any]) -> Iterator[str]:
    """The fields of a method's entry and of its runs."""
    for name, value in entry.items():
        yield re.sub("^difference_to_.*", "difference_to_METHOD", name)
        if name == "runs":
            for run in value.values():
                yield from fields_of(run)
        elif isinstance(value, dict):
            yield from value


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_every_field_of_the_record_is_documented(kind: type[Event]) -> None:
    section = PAGE[PAGE.index(f"### {kind.__name__}") :].partition("\n### ")[0]
    for name, place in kind.places().items():
        assert f"| `{'.'.join(place)}` |" in section
        assert str(kind.model_fields[name].description) in section
    assert f"| `{kind.kind}` |" in PAGE


def test_every_field_of_a_summary_is_documented(tmp_path: Path) -> None:
    for seed in (1, 2):
        diagnose(write_run(tmp_path / "runs" / f"clare-{seed}", seed=seed, preset={"seed": seed}))
        write_run(tmp_path / "runs" / f"ease-{seed}", "ease", seed=seed, preset={"seed": seed})
    runs = find_runs([tmp_path / "runs"])
    summary = summary_of_runs(runs, [Failure("l2p", "", "it diverged")])
    found = {name for entry in summary.values() for name in fields_of(entry)}
    assert {"failed", "difference_to_METHOD", "accuracy_matrix", "deviation"} <= found
    assert found <= WORDS


def test_every_field_of_a_released_environment_is_documented() -> None:
    paths = sorted((ROOT / "tests" / "releases").rglob("environment.json"))
    assert paths
    for path in paths:
        assert json.loads(path.read_text()).keys() <= WORDS
