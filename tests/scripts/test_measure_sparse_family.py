"""The figures of the sparse family: a rate is chosen on validation images, and the table holds what was measured."""

import json
from pathlib import Path

import pytest

from clare.registry import load_file

ROOT = Path(__file__).parents[2]
script = load_file(ROOT / "scripts" / "measure_sparse_family.py", "which measures the sparse family")


def test_a_rate_is_chosen_and_the_table_written(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, out = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text(f"before\n{script.START}old\n{script.END}\nafter\n")
    monkeypatch.setattr(script, "PRESET", str(tiny_preset))
    monkeypatch.setattr(script, "RATES", {"simplecil": (), "packnet": (1e-6, 0.02)})
    monkeypatch.setattr(script, "STREAM", "stream.num_classes=4")
    monkeypatch.setattr(script, "TRIAL", ("stream.num_classes=2", "stream.evaluate_on=validation"))
    monkeypatch.setattr(script, "PAGE", page)
    script.main(["--runs", str(tmp_path / "runs"), "--out", str(out)])
    methods = json.loads(out.read_text())["methods"]
    trials = methods["packnet"]["trials"]
    assert list(trials) == ["method.learning_rate=1e-06", "method.learning_rate=0.02"]
    best = max(trials, key=lambda setting: trials[setting])
    assert f"--set {best}" in methods["packnet"]["command"]
    assert "evaluate_on" not in methods["packnet"]["command"]
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1], "old" in lines) == ("before", "after", False)
    cells = [cell.strip() for cell in lines[5].strip("|").split("|")]
    assert cells[0] == "packnet"
    assert float(cells[1]) == pytest.approx(100 * methods["packnet"]["final_accuracy"], abs=0.05)
    assert cells[-2:] == ["2", "2"]
    page.write_text(page.read_text().replace("packnet", "lost"))
    script.main(["--from", str(out)])
    assert page.read_text().splitlines() == lines


def test_the_page_has_a_place_for_the_table() -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert text.count(script.START) == text.count(script.END) == 1


def test_the_page_shows_what_was_kept() -> None:
    kept = json.loads((ROOT / "results" / "sparse_family.json").read_text())["methods"]
    assert script.table(kept) in script.PAGE.read_text()
