"""A grid of settings as table, files and figure."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import write_run

from clare.metrics.summary import summarise
from clare.report.record import read_run
from clare.report.standings import Failure
from clare.report.sweep import Sweep, SweepRow, sweep_figure, sweep_sheet, write_sweep


def make_row(folder: Path, values: dict[str, Any], skill: float, num_seeds: int = 2, method: str = "clare") -> SweepRow:
    """Return a setting with two wanted seeds, of which so many were run."""
    name = "-".join([method, *map(str, values.values())])
    runs = [
        write_run(folder / f"{name}-{seed}", method, skill=skill, seed=seed, preset={"seed": seed})
        for seed in range(num_seeds)
    ]
    return SweepRow(method, tuple(map(read_run, runs)), values, 2)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Two values of a setting that one method has, a method without it, and a setting whose runs failed."""
    rows = (
        make_row(tmp_path, {"method.sparsity": 0.9}, 0.6),
        make_row(tmp_path, {"method.sparsity": 0.95}, 0.9, num_seeds=1),
        make_row(tmp_path, {"method.sparsity": 0.99}, 0.9, num_seeds=0),
        make_row(tmp_path, {}, 0.75, method="simplecil"),
    )
    failures = (Failure("clare-sparsity=0.99", "", "the loss became nan"),)
    return Sweep("Settings compared", {"method.sparsity": (0.9, 0.95, 0.99)}, rows, failures)


def test_settings_are_ranked_by_final_accuracy(sweep: Sweep) -> None:
    sheet = sweep_sheet(sweep)
    assert sheet.header == ("Method", "sparsity", "Seeds", "Average", "Final", "Forgetting")
    assert [row[:3] for row in sheet.rows] == [
        ("clare", "0.95", "1 of 2"),
        ("simplecil", "-", "2"),
        ("clare", "0.9", "2"),
        ("clare", "0.99", "0 of 2"),
    ]
    finals = [summarise(run)["final_accuracy"] or 0 for run in sweep.rows[0].runs]
    mean, deviation = 100 * np.mean(finals), 100 * np.std(finals, ddof=1)
    assert sheet.rows[2][4] == f"{mean:.1f} ± {deviation:.1f}"
    assert "±" not in sheet.rows[0][4]
    assert sheet.rows[3][3:] == ("failed", "-", "-")
    assert sheet.marked == {0}


def test_one_method_needs_no_column(sweep: Sweep) -> None:
    alone = Sweep("", sweep.swept, sweep.rows[:3], ())
    assert sweep_sheet(alone).header[0] == "sparsity"
    assert sweep_sheet(Sweep("", {}, sweep.rows[:1], ())).header[0] == "Method"


def test_columns_are_named_shortly_and_told_apart(sweep: Sweep) -> None:
    swept = dict.fromkeys(["stream.increment", "method.head.scale", "method.adapter.scale"], (1, 2))
    assert sweep_sheet(Sweep("", swept, sweep.rows[:1], ())).header[:3] == ("increment", "head.scale", "adapter.scale")


def test_nothing_is_marked_where_all_failed(sweep: Sweep) -> None:
    assert sweep_sheet(Sweep("", sweep.swept, sweep.rows[2:3], ())).marked == frozenset()


def test_the_files_tell_the_same(sweep: Sweep, tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = write_sweep(sweep, {"preset": "quickdraw"}, out)
    assert sorted(path.name for path in paths) == sorted(path.name for path in out.iterdir())
    written = json.loads((out / "sweep.json").read_text())
    assert written["preset"] == "quickdraw"
    assert written["swept"] == {"method.sparsity": [0.9, 0.95, 0.99]}
    assert written["failures"] == [{"run": "clare-sparsity=0.99", "reason": "the loss became nan"}]
    with (out / "sweep.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["method.sparsity"] for line in lines] == ["0.95", "", "0.9", "0.99"]
    for line, setting in zip(lines, written["settings"], strict=True):
        assert line["method"] == setting["method"]
        for name in ("average_accuracy", "final_accuracy", "forgetting"):
            for part in ("mean", "deviation"):
                assert line[f"{name}_{part}"] == ("" if setting[name][part] is None else str(setting[name][part]))
    finals = [run["final_accuracy"] for run in written["settings"][2]["runs"]]
    assert written["settings"][2]["final_accuracy"]["mean"] == pytest.approx(sum(finals) / 2, abs=1e-6)
    markdown = (out / "sweep.md").read_text()
    assert "| **clare** | 0.95 |" in markdown
    assert "- clare-sparsity=0.99 failed: the loss became nan" in markdown
    assert (out / "sweep.svg").read_text().count("<svg") == 1
    before = {path: path.read_bytes() for path in paths}
    write_sweep(sweep, {"preset": "quickdraw"}, out)
    assert {path: path.read_bytes() for path in paths} == before


def test_the_figure_has_the_means_over_the_swept_number(sweep: Sweep) -> None:
    figure = sweep_figure(sweep)
    assert figure is not None
    (axes,) = figure.axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert list(lines) == ["clare", "simplecil"]
    finals = [100 * (row.figures["final_accuracy"].mean or 0) for row in sweep.rows if row.runs]
    assert np.allclose(lines["clare"].get_xydata(), [(0.9, finals[0]), (0.95, finals[1])])
    assert np.allclose(lines["simplecil"].get_ydata(), finals[2])
    assert (axes.get_xlabel(), axes.get_xscale()) == ("sparsity", "linear")
    assert len(axes.collections) == 1
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.9", "0.95", "0.99"]


def test_a_second_number_makes_lines_and_wide_ranges_are_logarithmic(tmp_path: Path) -> None:
    swept = {"method.epochs": (1, 2), "method.learning_rate": (0.1, 0.001, 0.01)}
    rows = tuple(
        make_row(tmp_path, {"method.epochs": epochs, "method.learning_rate": rate}, 0.8, 1)
        for epochs in (1, 2)
        for rate in (0.1, 0.001, 0.01)
    )
    figure = sweep_figure(Sweep("", swept, rows, ()))
    assert figure is not None
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.get_lines()] == ["epochs 1", "epochs 2"]
    assert list(np.asarray(axes.get_lines()[0].get_xdata())) == [0.001, 0.01, 0.1]
    assert (axes.get_xlabel(), axes.get_xscale()) == ("learning_rate", "log")


@pytest.mark.parametrize(
    "swept",
    [
        {"method.mask": ("learnt", "random")},
        {"method.two_stage": (True, False)},
        {"method.sparsity": (0.9, "auto")},
        {"method.a": (1, 2), "method.b": (1, 2), "method.c": (1, 2)},
        {},
    ],
)
def test_without_one_or_two_numbers_there_is_no_figure(tmp_path: Path, swept: dict[str, Any]) -> None:
    values = {key: options[0] for key, options in swept.items()}
    sweep = Sweep("", swept, (make_row(tmp_path, values, 0.8),), ())
    assert sweep_figure(sweep) is None
    assert {path.name for path in write_sweep(sweep, {}, tmp_path / "out")} == {"sweep.json", "sweep.csv", "sweep.md"}
