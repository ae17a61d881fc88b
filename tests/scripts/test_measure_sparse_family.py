"""The figures of the sparse family: rates are tuned on validation images, and the table holds what was measured."""

import json
from pathlib import Path

import pytest

from clare.registry import load_file

ROOT = Path(__file__).parents[2]
script = load_file(ROOT / "scripts" / "measure_sparse_family.py", "which measures the sparse family")
SCALE = ["--trials", "2", "--tasks", "2", "--precision", "fp32"]


def test_rates_are_tuned_and_runs_of_all_seeds_kept(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, out = tmp_path / "page.md", tmp_path / "figures.json"
    start, end = script.marks("figures")
    page.write_text(f"before\n{start}old\n{end}\nafter\n")
    monkeypatch.setattr(script, "PRESET", str(tiny_preset))
    monkeypatch.setattr(script, "PAGE", page)
    where = ["--runs", str(tmp_path / "runs"), "--out", str(out)]
    script.main(["--methods", "er", "--seeds", "1", "2", *SCALE, *where, "--set", "stream.num_classes=4"])
    script.main(["--methods", "simplecil", *SCALE, *where])
    methods = json.loads(out.read_text())["methods"]
    assert list(methods) == ["er stream.num_classes=4", "simplecil"]
    found, plain = methods.values()
    assert len(found["trials"]) == 2
    assert list(found["seeds"]) == ["1", "2"]
    assert found["chosen"] == [max(found["trials"], key=lambda setting: found["trials"][setting])]
    command = found["seeds"]["2"]["command"]
    assert f"--seed 2 --set engine.precision=fp32 --set stream.num_classes=4 --set {found['chosen'][0]}" in command
    assert "evaluate_on" not in command
    assert (plain["trials"], plain["chosen"], list(plain["seeds"])) == ({}, [], ["1993"])
    with pytest.raises(SystemExit, match="choose another --out"):
        script.main(["--methods", "simplecil", *SCALE[:-1], "auto", *where])
    script.main(["--from", str(out)])
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1], "old" in lines) == ("before", "after", False)
    cells = [cell.strip() for cell in lines[4].strip("|").split("|")]
    assert cells[0] == "er stream.num_classes=4"
    assert "±" in cells[1]
    assert cells[5].endswith("; 12 pictures")
    assert cells[-3:] == ["1", "2", "2"]


def test_the_page_has_a_place_for_each_table() -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    for path in (ROOT / "results").glob("sparse_family*.json"):
        assert [text.count(mark) for mark in script.marks(path.stem)] == [1, 1]


def test_the_page_shows_what_was_kept() -> None:
    for path in (ROOT / "results").glob("sparse_family*.json"):
        assert script.table(json.loads(path.read_text())["methods"]) in script.PAGE.read_text()
