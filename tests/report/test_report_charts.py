"""The numbers behind the figures are the runs' numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import diagnose, write_run

from clare.report.charts import (
    Chart,
    Curve,
    accuracy_grids,
    at_tick,
    claims_grid,
    make_charts,
    movement_histograms,
    shown,
)
from clare.report.groups import group_runs
from clare.report.plots import COLOURS, COLOURS_ON_DARK, styles_of
from clare.report.record import RunRecord, find_runs, read_run


def charts_of(runs: list[RunRecord]) -> dict[str, Chart]:
    return {chart.name: chart for chart in make_charts(group_runs(runs))}


def curve(chart: Chart, label: str) -> Curve:
    return next(each for each in chart.curves if each.label == label)


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    write_run(tmp_path / "runs" / "a", "finetune", decay=0.3, with_capacity=False)
    diagnose(write_run(tmp_path / "runs" / "b", "clare"))
    return find_runs([tmp_path / "runs"])


@pytest.fixture
def seeds(tmp_path: Path) -> list[RunRecord]:
    for seed, classes in enumerate(["abcdef", "fedcba", "bcdefa"]):
        for method, skill in (("clare", 0.9), ("ease", 0.6)):
            folder = tmp_path / "seeds" / f"{method}-{seed}"
            write_run(folder, method, classes=classes, seed=10 * seed, skill=skill, preset={"seed": seed})
    return find_runs([tmp_path / "seeds"])


def test_accuracy_is_drawn_over_the_classes_seen(runs: list[RunRecord]) -> None:
    found = curve(charts_of(runs)["accuracy"], "finetune")
    assert found.places == (2, 4, 6)
    np.testing.assert_allclose(found.values, [100 * task.seen for task in runs[0].tasks])
    assert found.deviations is None


def test_new_tasks_and_forgetting_are_drawn_by_task(runs: list[RunRecord]) -> None:
    new = curve(charts_of(runs)["new-task"], "clare")
    assert new.places == (1, 2, 3)
    np.testing.assert_allclose(new.values, [100 * task.new for task in runs[1].tasks])
    forgotten = curve(charts_of(runs)["forgetting"], "finetune")
    assert forgotten.places == (1, 2)
    best = max(task.first for task in runs[0].tasks)
    assert forgotten.values[0] == pytest.approx(100 * (best - runs[0].tasks[-1].first))


def test_capacity_and_memory_are_drawn_where_they_are_known(runs: list[RunRecord]) -> None:
    charts = charts_of(runs)
    assert [each.label for each in charts["capacity"].curves] == ["clare"]
    np.testing.assert_allclose(charts["capacity"].curves[0].values, [5.0, 9.75, 14.2625])
    assert [each.label for each in charts["memory"].curves] == ["clare"]
    np.testing.assert_allclose(charts["memory"].curves[0].values, [1.2, 1.21, 1.22])


def test_costs_are_drawn_by_task(runs: list[RunRecord]) -> None:
    charts = charts_of(runs)
    assert curve(charts["stored"], "finetune").values == (3400, 3500, 3600)
    assert curve(charts["learn-time"], "clare").values == (10, 10, 10)
    assert curve(charts["evaluate-time"], "clare").values == (1, 1, 1)


def test_the_band_is_a_standard_deviation_around_the_mean(seeds: list[RunRecord]) -> None:
    found = curve(charts_of(seeds)["accuracy"], "clare")
    seen = 100 * np.array([[task.seen for task in run.tasks] for run in seeds if run.method == "clare"])
    np.testing.assert_allclose(found.values, seen.mean(axis=0))
    np.testing.assert_allclose(found.band[0], seen.mean(axis=0) - seen.std(axis=0, ddof=1))
    np.testing.assert_allclose(found.band[1], seen.mean(axis=0) + seen.std(axis=0, ddof=1))


def test_every_value_lies_within_the_axes(seeds: list[RunRecord]) -> None:
    for chart in charts_of(seeds).values():
        low, high = chart.span
        for each in chart.curves:
            assert low <= min(each.values) <= max(each.values) <= high, chart.name


def test_a_curve_is_summed_up_by_what_matters() -> None:
    found = Curve("a", (1, 2, 3), (5, float("nan"), 1), None)
    summaries: dict[Any, float] = {"last": 1, "mean": 3, "most": 5}
    for summary, expected in summaries.items():
        assert Chart("n", "t", "n", "x", "y", "percent", (found,), summary).summarised(found) == expected


def test_an_axis_is_logarithmic_for_sizes_that_lie_far_apart() -> None:
    near, far, nothing = (Curve("a", (1, 2), (1, most), None) for most in (29.0, 31.0, 0.0))
    for unit, each, expected in (
        ("numbers", near, False),
        ("numbers", far, True),
        ("numbers", nothing, False),
        ("percent", far, False),
    ):
        chart = Chart("n", "t", "n", "x", "y", unit, (each,))  # type: ignore[arg-type]
        assert chart.is_log == expected
        assert chart.span[0] == (1 if expected or unit == "percent" else 0)


def test_values_are_written_as_people_say_them() -> None:
    assert [shown(1234.5, unit) for unit in ("percent", "numbers", "seconds")] == ["1234.5", "1.2 k", "21 min"]  # type: ignore[arg-type]
    assert shown(1.25, "gigabytes") == "1.2 GB"
    assert shown(float("nan"), "percent") == "-"
    assert (at_tick(5000, "seconds"), at_tick(5000, "numbers"), at_tick(0.5, "gigabytes")) == ("5000", "5.0 k", "0.5")


def test_a_bound_has_its_place_among_the_classes_but_not_among_the_tasks(runs: list[RunRecord], tmp_path: Path) -> None:
    joint = read_run(write_run(tmp_path / "joint", "joint", task_sizes=(6,)))
    charts = charts_of([*runs, joint])
    assert curve(charts["accuracy"], "joint").places == (6,)
    for name, chart in charts.items():
        assert name == "accuracy" or "joint" not in [each.label for each in chart.curves]
    assert curve(charts_of([joint])["new-task"], "joint").places == (1,)


def test_there_is_no_figure_without_anything_to_show(tmp_path: Path) -> None:
    assert make_charts(group_runs([read_run(write_run(tmp_path / "none", num_tasks=0))])) == []
    names = list(charts_of([read_run(write_run(tmp_path / "one", num_tasks=1))]))
    assert names == ["accuracy", "new-task", "capacity", "stored", "learn-time", "evaluate-time"]


def test_matrices_are_kept_by_seed_and_as_their_mean(seeds: list[RunRecord]) -> None:
    group = group_runs(seeds)[0]
    grids = accuracy_grids(group)
    assert list(grids) == [None, 0, 1, 2]
    for seed, run in enumerate(group.runs):
        for task in run.tasks:
            np.testing.assert_allclose(grids[seed].values[task.task, : task.task + 1], 100 * np.array(task.per_task))
    np.testing.assert_allclose(grids[None].values, np.mean([grids[seed].values for seed in range(3)], axis=0))


def test_claims_are_shares_of_their_layer(runs: list[RunRecord]) -> None:
    without, with_ = group_runs(runs)
    assert claims_grid(without) is None
    grid = claims_grid(with_)
    assert grid is not None
    claimed = [task.diagnosis["claimed_per_block"] for task in runs[1].tasks]
    np.testing.assert_allclose(grid.values, 100 * np.array(claimed) / 250)
    assert grid.top == grid.values.max()


def test_histograms_are_of_the_first_the_middle_and_the_last_task(tmp_path: Path) -> None:
    run = read_run(diagnose(write_run(tmp_path / "run", task_sizes=(1,) * 7)))
    histograms = movement_histograms(group_runs([run])[0])
    assert [each.task for each in histograms] == [0, 3, 6]
    movement = run.tasks[0].diagnosis["movement"]
    assert sum(histograms[0].counts) == sum(movement["counts"])
    assert histograms[0].counts[0] > 0
    assert len(histograms[0].edges) == len(histograms[0].counts) + 1
    assert (histograms[0].edges[-1], histograms[0].threshold) == (pytest.approx(0.1), 2e-3)
    assert movement_histograms(group_runs([read_run(write_run(tmp_path / "old"))])[0]) == []


def test_clare_stands_out_and_many_methods_keep_apart(tmp_path: Path) -> None:
    for index in range(40):
        write_run(tmp_path / f"{index:02d}", f"method{index}", task_sizes=(1,))
    for name, sparsity in (("clare-a", 0.9), ("clare-b", 0.95)):
        write_run(tmp_path / name, "clare", task_sizes=(1,), preset={"sparsity": sparsity})
    styles = styles_of(group_runs(find_runs([tmp_path])))
    assert len(set(styles.values())) == 42
    strong = [label for label, style in styles.items() if style.is_strong]
    assert strong == ["clare@clare-a", "clare@clare-b"]
    assert {styles[label].colour for label in strong} == {0}
    assert 0 not in {style.colour for label, style in styles.items() if label not in strong}
    assert len(COLOURS) == len(COLOURS_ON_DARK)
