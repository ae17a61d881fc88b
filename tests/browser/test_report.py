"""The report page in a real browser: from a file, by pointer and keyboard, without scripts, on paper."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import diagnose, write_page, write_run

from clare.report.record import find_runs

pytestmark = pytest.mark.browser

METHODS = {"clare": "aligned", "ease": "aligned", "joint": "aligned", "simplecil": "prototype", "ranpac": "prototype"}


def write_report_runs(folder: Path) -> None:
    """Write runs of methods at two heads with two seeds each, and of a bound."""
    for seed, classes in ((1, "abcdefghijkl"), (2, "lkjihgfedcba")):
        for index, (method, strategy) in enumerate(METHODS.items()):
            sizes = (12,) if method == "joint" else (4, 4, 4)
            preset = {"seed": seed, "method": {"name": method, "head": {"form": "cosine", "kind": strategy}}}
            run = folder / f"{method}-{seed}"
            write_run(run, method, sizes, 0.95 - 0.1 * index, 0.05, seed=seed, classes=classes, preset=preset)
            if method == "clare":
                diagnose(run)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about these runs."""
    folder = tmp_path_factory.mktemp("report")
    write_report_runs(folder / "runs")
    return write_page(find_runs([folder / "runs"]), folder / "report.html", "A report")


def column(page: Any, table: int, place: int) -> list[str]:
    """The texts of a column of one of the sortable tables."""
    rows = page.locator("table.sortable").nth(table).locator("tbody tr")
    return [rows.nth(index).locator("th, td").nth(place).inner_text() for index in range(rows.count())]


def test_the_page_opens_from_a_file_and_asks_for_nothing_else(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report.as_uri())
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.reload()
    page.wait_for_selector("body[data-ready]")
    page.wait_for_load_state("networkidle")
    assert asked == [report.as_uri()]
    assert said == []


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_sticks_out_of_the_page(open_page: Callable[..., Any], report: Path, width: int) -> None:
    page = open_page(report.as_uri(), viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    outside = page.evaluate(
        """() => [...document.querySelectorAll("svg text")].filter((text) => {
          const [one, other] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
          return one.width && (one.left < other.left - 1 || one.right > other.right + 1
            || one.top < other.top - 1 || one.bottom > other.bottom + 1);
        }).map((text) => `${text.closest("figure").innerText.split("\\n")[0]}: ${text.textContent}`)"""
    )
    assert outside == [], outside


def test_columns_are_sorted_by_pointer_and_keyboard(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report.as_uri())
    header = page.locator("table.sortable").first.locator("thead th")
    names = [name.strip() for name in header.all_inner_texts()]
    final = names.index("Final")
    header.nth(final).locator("button").click()
    assert header.nth(final).get_attribute("aria-sort") == "descending"
    values = [float(text.split()[0]) for text in column(page, 0, final)]
    assert values == sorted(values, reverse=True)
    header.nth(final).locator("button").focus()
    page.keyboard.press("Enter")
    assert header.nth(final).get_attribute("aria-sort") == "ascending"
    assert [float(text.split()[0]) for text in column(page, 0, final)] == sorted(values)
    header.nth(0).locator("button").click()
    methods = column(page, 0, 0)
    assert methods == sorted(methods)
    assert page.locator("th[aria-sort]").count() == 1


def test_what_has_no_value_is_sorted_to_the_end(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report.as_uri())
    header = page.locator("table.sortable").first.locator("thead th")
    average = [name.strip() for name in header.all_inner_texts()].index("Average")
    for _ in range(2):
        header.nth(average).locator("button").click()
        assert column(page, 0, average)[-1] == "-"


def test_the_theme_follows_the_reader_and_can_be_switched(open_page: Callable[..., Any], report: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = open_page(report.as_uri(), color_scheme="light")
    dark = open_page(report.as_uri(), color_scheme="dark")
    bright, dim = light.evaluate(paper), dark.evaluate(paper)
    assert bright != dim
    light.click(".theme")
    assert light.evaluate(paper) == dim
    light.reload()
    light.wait_for_selector("body[data-ready]")
    assert light.evaluate(paper) == dim
    light.click(".theme")
    assert light.evaluate(paper) == bright


def test_a_curve_under_the_pointer_is_lit_in_every_figure_and_tells_its_value(
    open_page: Callable[..., Any], report: Path
) -> None:
    page = open_page(report.as_uri())
    series = page.locator("#figure-accuracy .series[data-label=clare]")
    x, y, where, value = json.loads(series.get_attribute("data-points"))[1]
    svg = page.locator("#figure-accuracy svg.curves")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    scale = box["width"] / 600
    page.mouse.move(box["x"] + x * scale, box["y"] + y * scale)
    assert page.inner_text(".tip") == f"clare, {where}: {value}"
    lit = page.locator(".series.lit[data-points]")
    assert {lit.nth(index).get_attribute("data-label") for index in range(lit.count())} == {"clare"}
    assert lit.count() == page.locator(".series[data-label=clare]").count() > 3
    page.mouse.move(2, 2)
    assert page.locator(".tip").is_hidden()
    assert page.locator("body.lit").count() == 0


def test_a_legend_entry_is_walked_by_keyboard_and_pinned(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report.as_uri())
    points = json.loads(page.locator("#figure-accuracy .series[data-label=ease]").get_attribute("data-points"))
    entry = page.locator("#figure-accuracy .legend button", has_text="ease")
    page.locator("#figure-accuracy .legend button").first.focus()
    while entry.evaluate("(button) => button !== document.activeElement"):
        page.keyboard.press("Tab")
    assert page.inner_text(".tip") == f"ease, {points[-1][2]}: {points[-1][3]}"
    page.keyboard.press("ArrowLeft")
    assert page.inner_text(".tip") == f"ease, {points[-2][2]}: {points[-2][3]}"
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Tab")
    page.evaluate("document.activeElement.blur()")
    assert entry.get_attribute("aria-pressed") == "true"
    assert page.locator("#figure-accuracy .series.lit[data-points]").get_attribute("data-label") == "ease"


def test_cells_of_a_matrix_tell_their_value_and_the_seed_is_chosen(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report.as_uri())
    assert page.locator("#matrix .cell:visible").count() == page.locator("#matrix figure").count()
    page.click("label[for=seed-2]")
    shown = page.locator("#matrix .cell:visible")
    assert {shown.nth(index).get_attribute("data-seed") for index in range(shown.count())} == {"2"}
    grid = shown.first.locator("svg.grid")
    values, (left, top, wide, high) = (json.loads(grid.get_attribute(f"data-{name}")) for name in ("values", "box"))
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    scale = box["width"] / 310
    page.mouse.move(box["x"] + (left + wide / 6) * scale, box["y"] + (top + 5 * high / 6) * scale)
    assert page.inner_text(".tip") == f"after task 3, task 1: {values[2][0]:g} %"


def test_commands_are_copied(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report.as_uri(), permissions=["clipboard-read", "clipboard-write"])
    page.click("#repeat .copied button")
    page.wait_for_selector("#repeat .copied button:has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == page.inner_text("#repeat pre")


def test_the_page_is_whole_without_scripts(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("svg.curves").count() >= 6
    assert page.locator(".theme, th button, .copied").count() == 0
    assert page.locator("#matrix .cell:visible").count() == page.locator("#matrix figure").count()
    page.click("label[for=seed-1]")
    assert page.locator("#matrix .cell[data-seed='1']").first.is_visible()
    assert page.locator("#matrix .cell[data-seed=mean]").first.is_hidden()
    page.click("#figure-accuracy .numbers summary")
    assert page.locator("#figure-accuracy .numbers table").is_visible()
    context.close()


def test_on_paper_the_page_is_light_and_has_no_buttons(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report.as_uri(), color_scheme="dark")
    page.click(".theme")
    page.click(".theme")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for hidden in (".theme", "nav", ".choice", ".copied button", ".numbers"):
        assert page.locator(hidden).first.is_hidden(), hidden
    assert page.locator(".legend button").first.is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_a_foreign_script_does_not_run(open_page: Callable[..., Any], report: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(report.read_text().replace("</main>", "<script>document.title = 'taken'</script></main>"))
    assert open_page(changed.as_uri()).title() != "taken"
