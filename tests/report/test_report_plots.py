"""Figures hold the runs' numbers, and their files are what they say."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_runs import write_run
from matplotlib.figure import Figure
from PIL import Image

from clare.report.plots import (
    EMPHASIS,
    accuracy_curves,
    accuracy_heat_map,
    capacity_curves,
    draw_curves,
    forgetting_curves,
    new_task_curves,
    storage_curves,
    to_svg,
    write_plots,
)
from clare.report.record import RunRecord, find_runs, read_run


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    write_run(tmp_path / "runs" / "a", "finetune", decay=0.3, with_capacity=False)
    write_run(tmp_path / "runs" / "b", "clare")
    return find_runs([tmp_path / "runs"])


def line(figure: Figure, label: str) -> tuple[list[float], list[float]]:
    found = next(each for each in figure.axes[0].get_lines() if each.get_label() == label)
    return list(found.get_xdata()), list(found.get_ydata())


def test_accuracy_is_drawn_over_the_classes_seen(runs: list[RunRecord]) -> None:
    across, upward = line(accuracy_curves(runs), "finetune")
    assert across == [2, 4, 6]
    np.testing.assert_allclose(upward, [100 * task.seen for task in runs[0].tasks])


def test_new_tasks_and_forgetting_are_drawn_by_task(runs: list[RunRecord]) -> None:
    across, upward = line(new_task_curves(runs), "clare")
    assert across == [1, 2, 3]
    np.testing.assert_allclose(upward, [100 * task.new for task in runs[1].tasks])
    across, upward = line(forgetting_curves(runs), "finetune")
    assert across == [1, 2]
    best = max(task.first for task in runs[0].tasks)
    assert upward[0] == pytest.approx(100 * (best - runs[0].tasks[-1].first))


def test_capacity_is_drawn_for_methods_that_count_it(runs: list[RunRecord]) -> None:
    figure = capacity_curves(runs)
    assert [each.get_label() for each in figure.axes[0].get_lines()] == ["clare"]
    np.testing.assert_allclose(line(figure, "clare")[1], [5.0, 9.75, 14.2625])


@pytest.mark.parametrize("draw", [accuracy_curves, new_task_curves, forgetting_curves, capacity_curves, storage_curves])
def test_every_point_lies_within_the_axes(draw: Callable[[list[RunRecord]], Figure], runs: list[RunRecord]) -> None:
    axes = draw(runs).axes[0]
    low, high = axes.get_ylim()
    values = np.concatenate([each.get_ydata() for each in axes.get_lines() if not each.get_label().startswith("_")])
    assert low <= values.min()
    assert values.max() <= high


def test_what_is_stored_is_drawn_by_task(runs: list[RunRecord]) -> None:
    assert line(storage_curves(runs), "finetune") == ([1, 2, 3], [3400, 3500, 3600])
    labels = [text.get_text() for text in storage_curves(runs).axes[0].get_yticklabels()]
    assert "3.5 k" in labels


@pytest.fixture
def seeds(tmp_path: Path) -> list[RunRecord]:
    for seed, classes in enumerate(["abcdef", "fedcba", "bcdefa"]):
        for method, skill in (("clare", 0.9), ("ease", 0.6)):
            folder = tmp_path / "seeds" / f"{method}-{seed}"
            write_run(folder, method, classes=classes, seed=10 * seed, skill=skill, preset={"seed": seed})
    return find_runs([tmp_path / "seeds"])


@pytest.mark.parametrize("draw", [accuracy_curves, new_task_curves, forgetting_curves, capacity_curves, storage_curves])
def test_seeds_are_one_line_with_a_band(draw: Callable[[list[RunRecord]], Figure], seeds: list[RunRecord]) -> None:
    axes = draw(seeds).axes[0]
    labels = [each.get_label() for each in axes.get_lines() if not each.get_label().startswith("_")]
    assert labels == ["clare", "ease"]
    assert len(axes.patches) == 2
    low, high = axes.get_ylim()
    for band in axes.patches:
        upward = band.get_xy()[:, 1]
        assert upward.max() <= high
        assert upward.min() >= low or draw in (capacity_curves, storage_curves)


def test_the_band_is_a_standard_deviation_around_the_mean(seeds: list[RunRecord]) -> None:
    figure = accuracy_curves(seeds)
    seen = 100 * np.array([[task.seen for task in run.tasks] for run in seeds if run.method == "clare"])
    np.testing.assert_allclose(line(figure, "clare")[1], seen.mean(axis=0))
    edge = figure.axes[0].patches[0].get_xy()
    np.testing.assert_allclose(edge[:3], np.c_[[2, 4, 6], seen.mean(axis=0) - seen.std(axis=0, ddof=1)])
    np.testing.assert_allclose(edge[3:6], np.c_[[6, 4, 2], (seen.mean(axis=0) + seen.std(axis=0, ddof=1))[::-1]])


def test_a_bound_has_its_place_among_the_classes_but_not_among_the_tasks(runs: list[RunRecord], tmp_path: Path) -> None:
    joint = read_run(write_run(tmp_path / "joint", "joint", task_sizes=(6,)))
    assert line(accuracy_curves([*runs, joint]), "joint")[0] == [6]
    for draw in (new_task_curves, storage_curves):
        assert "joint" not in [each.get_label() for each in draw([*runs, joint]).axes[0].get_lines()]
    assert line(new_task_curves([joint]), "joint")[0] == [1]


def test_clare_stands_out(runs: list[RunRecord]) -> None:
    other, clare = accuracy_curves(runs).axes[0].get_lines()
    assert clare.get_color() == EMPHASIS != other.get_color()
    assert clare.get_linewidth() > other.get_linewidth()


def test_many_runs_keep_apart(tmp_path: Path) -> None:
    for index in range(20):
        write_run(tmp_path / f"{index:02d}", f"method{index}", task_sizes=(1, 1))
    lines = accuracy_curves(find_runs([tmp_path])).axes[0].get_lines()
    assert len({(each.get_color(), each.get_marker(), each.get_linestyle()) for each in lines}) == 20


def test_the_heat_map_holds_the_matrix(runs: list[RunRecord]) -> None:
    axes = accuracy_heat_map(runs[0], "finetune").axes[0]
    shown = [text.get_text() for text in axes.texts]
    assert shown == [f"{100 * value:.0f}" for task in runs[0].tasks for value in task.per_task]


def test_long_streams_are_drawn_without_numbers(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", task_sizes=(1,) * 30))
    assert not accuracy_heat_map(run, "clare").axes[0].texts
    assert to_svg(accuracy_curves([run]), "accuracy").startswith("<svg")


def test_plots_are_written_as_png(runs: list[RunRecord], tmp_path: Path) -> None:
    paths = write_plots(runs, tmp_path / "plots")
    names = ["accuracy", "new-task", "forgetting", "capacity", "stored", "matrix-finetune", "matrix-clare"]
    assert [path.name for path in paths] == [f"{name}.png" for name in names]
    assert sorted((tmp_path / "plots").iterdir()) == sorted(paths)
    with Image.open(paths[0]) as image:
        assert image.format == "PNG"
        assert image.size == (1080, 600)


def test_labels_that_make_one_file_name_do_not_collide(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "my method")
    write_run(tmp_path / "runs" / "b", "my+method")
    paths = write_plots(find_runs([tmp_path / "runs"]), tmp_path / "plots")
    assert len(set(paths)) == len(paths)
    assert all(path.is_file() for path in paths)


def test_runs_without_a_task_draw_nothing(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", num_tasks=0))
    assert write_plots([run], tmp_path / "plots") == []


def test_a_single_task_draws_no_forgetting(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", num_tasks=1))
    assert list(draw_curves([run])) == ["accuracy", "new-task", "capacity", "stored"]


def test_names_are_taken_literally(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", r"$\broken{$ <b>&"))
    drawing = to_svg(accuracy_heat_map(run, run.method), "matrix")
    assert r"$\broken{$ &lt;b&gt;&amp;" in drawing
    accuracy_curves([run]).savefig(io.BytesIO(), format="png")


def test_drawings_share_no_id_and_take_the_ink_of_the_page(runs: list[RunRecord]) -> None:
    drawings = [to_svg(accuracy_curves(runs), name) for name in ("one", "two")]
    ids = [set(re.findall(r' id="([^"]+)"', drawing)) for drawing in drawings]
    assert ids[0]
    assert not ids[0] & ids[1]
    for drawing in drawings:
        assert set(re.findall(r'href="#([^"]+)"', drawing)) <= set(re.findall(r' id="([^"]+)"', drawing))
        assert "currentColor" in drawing
        assert "http" not in drawing


def test_the_same_runs_give_the_same_drawing(runs: list[RunRecord]) -> None:
    assert to_svg(accuracy_curves(runs), "one") == to_svg(accuracy_curves(runs), "one")


def test_pyplot_is_left_alone(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    to_svg(accuracy_curves(runs), "accuracy")
    assert "matplotlib.pyplot" not in sys.modules
