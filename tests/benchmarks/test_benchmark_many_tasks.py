"""The benchmark of one more task after thousands: each part is as that many tasks leave it."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_each_part_goes_on_after_so_many_tasks(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = script("many_tasks")
    conditions = many.Conditions(num_coordinates=400, window=3)
    monkeypatch.setattr(many, "Conditions", lambda: conditions)
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", ["many_tasks.py", "--tasks", "4,30", "--out", str(out)])
    many.main()
    found = json.loads(out.read_text())["seconds"]
    assert set(found) == {
        "ledger of one pool",
        "ledger with fresh pools",
        "folder of a run",
        "row of accuracies",
        *(f"{kind} head" for kind in many.HEADS),
    }
    assert all(set(row) == {"4", "30"} for row in found.values())
