"""Differences are computed from rows, and only between numbers of the same data and backbone."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from experiment_worlds import request_of, results_of

from clare.paper.paper import read_paper
from clare.paper.plan import plan_runs
from clare.paper.results import Choice, as_values, make_setting
from clare.paper.tables import conditions, preset_sheet, sheets, signed, to_page
from clare.report.tables import to_csv


def test_differences_are_computed_by_hand() -> None:
    results = results_of("table3", {"clare": 80.0, "no-capacity": 75.5, "one-stage": 79.25}, is_paper=True)
    cell = results.cells["here", "one-stage"]
    assert results.delta(cell, "final") == pytest.approx(-0.75)
    assert results.delta(cell, "average") == pytest.approx(-0.75)
    # The paper prints -1.08 here, which does not follow from its rows: 78.96 - 79.73.
    assert results.paper_delta(cell, "final") == pytest.approx(-0.77)
    assert results.to_paper(cell, "final") == pytest.approx(79.25 - 78.96)
    assert results.to_paper(cell, "average") == pytest.approx(89.25 - 83.25)
    sheet = preset_sheet(results, results.settings[0])
    assert sheet.header == (
        "Row",
        *("Ā", "A_T", "Δ Ā", "Δ A_T", "paper Ā", "paper A_T", "paper Δ Ā", "paper Δ A_T", "to paper Ā", "to paper A_T"),
    )
    assert sheet.rows[-1] == (
        *("w/o two-stage", "89.25", "79.25", "-0.75", "-0.75"),
        *("83.25", "78.96", "-0.63", "-0.77", "+6.00", "+0.29"),
    )


def test_unlike_things_are_not_subtracted() -> None:
    results = results_of("table3", {"clare": 80.0, "no-capacity": 75.5, "one-stage": 79.25}, is_paper=False)
    cell = results.cells["here", "one-stage"]
    assert results.to_paper(cell, "final") is None
    sheet = preset_sheet(results, results.settings[0])
    assert "the paper's numbers are of another backbone" in sheet.title
    assert sheet.header[-1] == "Δ to paper's Δ A_T"
    # -0.75 here beside -0.77 there.
    assert sheet.rows[-1][-1] == "+0.02"
    assert "are not subtracted from each other" in conditions(results)[0]


def test_numbers_of_other_data_stand_apart() -> None:
    results = results_of("table6", {"clare": 80.0, "sdlora": 75.0}, has_numbers=False)
    first, *others = sheets(results)
    assert first.header == ("Row", "A_T", "Δ A_T")
    assert [sheet.title for sheet in others] == [
        f"The paper on {stream}, other data than ours"
        for stream in ("imagenet-r-10x20", "imagenet-a-50x4", "omnibenchmark1k-100x10")
    ]
    assert others[2].rows[1] == ("SD-LoRA", "13.27 ± 12.83", "-53.83")


def test_a_stream_that_is_ours_is_not_among_the_other_data() -> None:
    finals = {"clare": 80.0, "sdlora": 75.0}
    ours, other = results_of("table6", finals, is_paper=True), results_of("table6", finals, has_numbers=False)
    there = replace(other.settings[0], preset="there")
    cells = {**ours.cells, **{("there", key): replace(cell, preset="there") for (_, key), cell in other.cells.items()}}
    both = replace(ours, settings=(ours.settings[0], there), cells=cells)
    assert [sheet.title for sheet in sheets(both)[2:]] == [
        f"The paper on {stream}, other data than ours" for stream in ("imagenet-a-50x4", "omnibenchmark1k-100x10")
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(-0.004, "+0.00"), (0.004, "+0.00"), (-0.006, "-0.01"), (1.5, "+1.50"), (None, "-")]
)
def test_no_zero_has_a_minus(value: float | None, text: str) -> None:
    assert signed(value) == text


def test_whose_seeds_they_are_is_said_only_where_it_is_known(tiny_preset: Path, tmp_path: Path) -> None:
    def same_seeds(name: str, *seeds: int) -> bool | None:
        request = request_of(name, tiny_preset, tmp_path, seeds=seeds)
        runs = plan_runs(request, {}, {})[str(tiny_preset), "clare"]
        return make_setting(read_paper(), request.study, str(tiny_preset), runs).same_seeds

    assert same_seeds("table7", 1993) is True
    assert same_seeds("table7", 1993, 1994) is False
    assert same_seeds("table6", 1, 2) is None


def test_a_failed_row_is_a_dash_and_a_sentence() -> None:
    results = results_of("table3", {"clare": 80.0, "one-stage": 79.25}, is_paper=True)
    row = preset_sheet(results, results.settings[0]).rows[1]
    assert row[:5] == ("w/o capacity-aware", "failed", "-", "-", "-")
    page = to_page(results)
    assert "- quickdraw-20x10, w/o capacity-aware failed: it broke" in page
    assert as_values(results, results.cells["here", "no-capacity"])["failed"] == "it broke"


def test_without_the_reference_there_are_no_differences() -> None:
    results = results_of("table3", {"one-stage": 79.25}, is_paper=True)
    assert results.delta(results.cells["here", "one-stage"], "final") is None
    assert preset_sheet(results, results.settings[0]).rows[-1][3:5] == ("-", "-")


def test_a_choice_is_told_with_its_numbers() -> None:
    choice = Choice(
        "method.constant_share=0.05", {"method.constant_share=0.1": None, "method.constant_share=0.05": (0.5, 0.6)}
    )
    results = results_of(
        "table3", {"clare": 80.0, "no-capacity": 75.5, "one-stage": 79.25}, choices={"no-capacity": choice}
    )
    page = to_page(results)
    assert "| w/o capacity-aware (0.05) | 85.50 | 75.50 |" in page
    assert "chosen by final accuracy on validation images (method.constant_share 0.1: failed, 0.05: 50.00)" in page


def test_a_csv_file_has_a_line_for_each_row() -> None:
    results = results_of("table3", {"clare": 80.0, "one-stage": 79.25}, is_paper=True)
    text = to_csv([as_values(results, cell) for cell in results.cells.values()])
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [line["row"] for line in lines] == [
        "CLARE",
        "w/o capacity-aware",
        "w/o capacity-aware, moved in the task",
        "w/o capacity-aware, merge as printed",
        "w/o two-stage",
    ]
    assert lines[0]["final_to_paper"] == "0.27"
    assert lines[1]["final"] == ""
    assert lines[-1]["paper_final_to_reference"] == "-0.77"
