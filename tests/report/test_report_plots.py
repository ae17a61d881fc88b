"""The files for papers: every figure as PNG and SVG, of a column's width, legible, the same again."""

import io
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from fake_runs import diagnose, write_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from clare.report.plots import EMPHASIS, to_png, to_svg
from clare.report.record import RunRecord, find_runs, read_run
from clare.report.write import draw_figures, write_plots


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    write_run(tmp_path / "runs" / "a", "finetune", decay=0.3, with_capacity=False)
    diagnose(write_run(tmp_path / "runs" / "b", "clare"))
    return find_runs([tmp_path / "runs"])


def test_every_figure_is_written_twice(runs: list[RunRecord], tmp_path: Path) -> None:
    paths = write_plots(runs, tmp_path / "plots")
    names = ["accuracy", "new-task", "forgetting", "capacity", "stored", "learn-time", "evaluate-time", "memory"]
    names += ["choosing", "matrix-finetune", "matrix-clare", "claims-clare"]
    names += [f"updates-task-{task}-clare" for task in (1, 2, 3)]
    assert [path.name for path in paths] == [f"{name}.{ending}" for name in names for ending in ("png", "svg")]
    assert sorted((tmp_path / "plots").iterdir()) == sorted(paths)
    for path in paths[::2]:
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.size[0] == (2066 if path.stem == "choosing" else 990)
    for path in paths[1::2]:
        drawing = path.read_text()
        assert ('width="496pt"' if path.stem == "choosing" else 'width="237.6pt"') in drawing
        assert "<text" in drawing


def test_figures_of_an_earlier_report_go(tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    earlier = write_plots([read_run(write_run(tmp_path / "ease", "ease"))], folder)
    own = folder / "own.svg"
    own.write_text("<svg/>")
    paths = write_plots([read_run(write_run(tmp_path / "linear", "linear"))], folder)
    assert set(earlier) - set(paths)
    assert set(folder.iterdir()) == {*paths, own}


def test_text_is_legible_at_the_width_of_a_column(runs: list[RunRecord]) -> None:
    for name, figure in draw_figures(runs).items():
        sizes = re.findall(r"font(?:-size)?: ([\d.]+)px", to_svg(figure, name).decode())
        assert sizes, name
        assert min(map(float, sizes)) >= 6, name


def test_nothing_sticks_out_of_a_figure(runs: list[RunRecord]) -> None:
    for name, figure in draw_figures(runs).items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        inner, outer = figure.get_tightbbox(canvas.get_renderer()), figure.get_size_inches()
        assert min(inner.x0, inner.y0) >= -0.01, name
        assert inner.x1 <= outer[0] + 0.01, name
        assert inner.y1 <= outer[1] + 0.01, name


def legend_and_axes(figure: Figure) -> tuple[float, float]:
    """The top of the legend and the bottom of the axes with their labels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.axes[0].get_tightbbox(canvas.get_renderer())
    assert box is not None
    return figure.legends[0].get_window_extent().y1, box.y0


@pytest.mark.parametrize("name", ["m{}", "a method with a long name {}", "an even longer name of a method {}"])
def test_the_legend_covers_nothing(tmp_path: Path, name: str) -> None:
    for index in range(14):
        write_run(tmp_path / f"{index:02d}", name.format(index), task_sizes=(1, 1))
    top, bottom = legend_and_axes(draw_figures(find_runs([tmp_path]))["accuracy"])
    assert top <= bottom


def test_curves_hold_the_numbers_and_clare_is_strong(runs: list[RunRecord]) -> None:
    other, clare = draw_figures(runs)["accuracy"].axes[0].get_lines()
    np.testing.assert_allclose(clare.get_ydata(), [100 * task.seen for task in runs[1].tasks])
    assert clare.get_color() == EMPHASIS != other.get_color()
    assert clare.get_linewidth() > other.get_linewidth()


def test_the_heat_map_holds_the_matrix(runs: list[RunRecord]) -> None:
    axes = draw_figures(runs)["matrix-finetune"].axes[0]
    shown = [text.get_text() for text in axes.texts]
    assert shown == [f"{100 * value:.0f}" for task in runs[0].tasks for value in task.per_task]


def test_the_bars_of_a_histogram_end_at_the_threshold(runs: list[RunRecord]) -> None:
    axes = draw_figures(runs)["updates-task-1-clare"].axes[0]
    chosen = [bar for bar in axes.patches if bar.get_facecolor()[:3] == pytest.approx((213 / 255, 94 / 255, 0))]
    assert min(bar.get_x() for bar in chosen) == pytest.approx(2e-3)  # type: ignore[attr-defined]


def test_long_streams_are_drawn_without_numbers(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", task_sizes=(1,) * 30))
    assert not draw_figures([run])["matrix-clare"].axes[0].texts


def test_labels_that_make_one_file_name_do_not_collide(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "my method", task_sizes=(1,))
    write_run(tmp_path / "runs" / "b", "my+method", task_sizes=(1,))
    names = list(draw_figures(find_runs([tmp_path / "runs"])))
    assert [name for name in names if name.startswith("matrix")] == ["matrix-my-method", "matrix-my-method-1"]


def test_runs_without_a_task_draw_nothing(tmp_path: Path) -> None:
    assert draw_figures([read_run(write_run(tmp_path / "run", num_tasks=0))]) == {}


def test_names_are_taken_literally(tmp_path: Path) -> None:
    figure = draw_figures([read_run(write_run(tmp_path / "run", r"$\broken{$ <b>&"))])["accuracy"]
    assert r"$\broken{$ &lt;b&gt;&amp;" in to_svg(figure, "accuracy").decode()
    to_png(figure)


def test_characters_that_no_font_has_warn_nobody() -> None:
    figure = Figure()
    figure.suptitle("\ue000 \U0010fffd")
    with pytest.warns(UserWarning, match="Glyph"):
        figure.savefig(io.BytesIO(), format="png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to_png(figure).startswith(b"\x89PNG")
        assert b"</svg>" in to_svg(figure, "name")


def test_the_same_runs_give_the_same_drawing(runs: list[RunRecord]) -> None:
    first, second = (to_svg(draw_figures(runs)["accuracy"], "accuracy") for _ in range(2))
    assert first == second


def test_pyplot_is_left_alone(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    to_svg(draw_figures(runs)["accuracy"], "accuracy")
    assert "matplotlib.pyplot" not in sys.modules
