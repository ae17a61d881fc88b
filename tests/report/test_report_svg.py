"""What the page shows is the figure of the files, in the page's own colours and type."""

import re
from pathlib import Path

import numpy as np
import pytest
from fake_runs import diagnose, write_run

from clare.report.charts import accuracy_grids, make_charts
from clare.report.groups import group_runs
from clare.report.plots import COLUMN, PAGE, PAGE_GRID, chart_figure, grid_figure, styles_of, swatch_figure
from clare.report.record import read_run
from clare.report.svg import as_data, page_svg, places_in


@pytest.fixture
def drawn(tmp_path: Path) -> str:
    groups = group_runs([read_run(diagnose(write_run(tmp_path / "run")))])
    figure = chart_figure(make_charts(groups)[0], styles_of(groups), PAGE)
    return page_svg(figure, "curves", "<accuracy>", {"clare": 'class="series"'}, as_data(points=[1, 'a"b']))


def test_page_and_files_have_the_same_curves(tmp_path: Path) -> None:
    groups = group_runs([read_run(write_run(tmp_path / "run"))])
    for chart in make_charts(groups):
        file, page = (chart_figure(chart, styles_of(groups), size).axes[0] for size in (COLUMN, PAGE))
        for one, other in zip(file.get_lines(), page.get_lines(), strict=True):
            np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
        assert file.get_ylim() == page.get_ylim()
        assert file.get_title(loc="left") == page.get_title(loc="left")


def test_colours_follow_the_page_and_nothing_has_an_id(drawn: str) -> None:
    assert "var(--c0)" in drawn
    assert "var(--quiet)" in drawn
    assert not re.search(r"#[0-9a-f]{6}|\bid=|url\(|font-family", drawn)


def test_named_artists_are_groups_and_elements_are_closed(drawn: str) -> None:
    assert drawn.count("<g ") == drawn.count("</g>")
    assert drawn.count('<g class="series">') == 1
    assert 'aria-label="&lt;accuracy&gt;" data-points="[1,&quot;a\\&quot;b&quot;]"' in drawn


def test_the_script_is_told_where_the_points_are(tmp_path: Path) -> None:
    groups = group_runs([read_run(write_run(tmp_path / "run"))])
    chart = make_charts(groups)[0]
    (curve,) = chart.curves
    figure = chart_figure(chart, styles_of(groups), PAGE)
    places = places_in(figure, list(zip(curve.places, curve.values, strict=True)))
    group = page_svg(figure, "curves", "", {"clare": "data-here"}).partition("<g data-here>")[2]
    (path,) = re.findall(r'<path class="line" d="M([^"]+)"', group[: group.index("</g>") + 4])
    steps = np.array([[float(number) for number in step.split()] for step in path.split("l")])
    np.testing.assert_allclose(steps.cumsum(axis=0), places, atol=0.21)


def test_a_matrix_lies_where_the_script_looks_for_it(tmp_path: Path) -> None:
    group = group_runs([read_run(write_run(tmp_path / "run"))])[0]
    figure = grid_figure(accuracy_grids(group)[None], "", PAGE_GRID)
    assert PAGE_GRID.margins is not None
    left, right, below, above = PAGE_GRID.margins
    assert places_in(figure, [(0.5, 0.5), (3.5, 3.5)]) == [
        [left, above],
        [PAGE_GRID.width - right, PAGE_GRID.height - below],
    ]


def test_a_piece_of_the_legend_is_decoration(tmp_path: Path) -> None:
    (style,) = styles_of(group_runs([read_run(write_run(tmp_path / "run"))])).values()
    swatch = page_svg(swatch_figure(style), "swatch", "", is_decoration=True)
    assert 'aria-hidden="true"' in swatch
    assert swatch.count("<path") == 2
