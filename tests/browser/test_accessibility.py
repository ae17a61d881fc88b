"""What axe-core finds in every state of the pages: in both colour schemes, on a wide screen and on a phone."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import write_page
from fake_server import Fake, serve
from test_page import APPLE, SETTLED, Draw, Open, guessed, keep
from test_page_photos import jpeg
from test_report import write_report_runs

from clare.classifier.suspects import Read, Suspect
from clare.cli.suspects import as_page
from clare.report.record import find_runs

pytestmark = pytest.mark.browser

Violations = Callable[[Any], list[str]]
Screen = dict[str, Any]
WIDE: Screen = {"viewport": {"width": 1100, "height": 900}}
PHONE: Screen = {"viewport": {"width": 360, "height": 760}, "has_touch": True, "is_mobile": True}


@pytest.fixture(params=[("wide", "light"), ("phone", "dark")], ids="-".join)
def screen(request: pytest.FixtureRequest) -> Screen:
    """A size and a colour scheme; nothing moves, for what fades in has no colour of its own yet."""
    size, scheme = request.param
    return {**(WIDE if size == "wide" else PHONE), "color_scheme": scheme, "reduced_motion": "reduce"}


def test_a_drawing_is_guessed_kept_and_taught(
    open_page: Open, fake: Fake, draw: Draw, violations: Violations, screen: Screen
) -> None:
    page = open_page(fake.address, **screen)
    assert violations(page) == []
    keep(page, draw, 2)
    draw(page, APPLE)
    guessed(page)
    page.fill("#class-name", "pear")
    page.click("summary:has-text('By keyboard')")
    assert violations(page) == []
    fake.job_steps = 1000
    page.click("#teach")
    page.wait_for_selector("#job:visible")
    assert violations(page) == []


def test_none_of_these_an_undo_and_a_problem(
    open_page: Open, draw: Draw, violations: Violations, screen: Screen
) -> None:
    with serve(Fake(token="sesame", unknown=0.93)) as fake:
        page = open_page(fake.address, **screen)
        draw(page, APPLE)
        page.wait_for_selector("#guesses.unknown")
        assert violations(page) == []
        page.click("#undo")
        page.wait_for_selector("#undo-dialog:visible")
        assert violations(page) == []
        page.click("#undo-confirm")
        page.wait_for_selector("#problem:visible")
        assert violations(page) == []
        page.fill("#token", "sesame")
        page.press("#token", "Enter")
        page.click("#undo")
        page.click("#undo-confirm")
        page.wait_for_selector("#history .gone")
        assert violations(page) == []


def test_photos_and_the_camera(open_page: Open, violations: Violations, screen: Screen) -> None:
    with serve(Fake(is_drawing_model=False)) as fake:
        page = open_page(fake.address, permissions=["camera"], **screen)
        page.set_input_files("#files", [jpeg(20), jpeg(120)])
        guessed(page)
        page.click("#photo-list li:nth-child(2) button")
        page.click("#keep-photos")
        page.wait_for_selector("#kept img")
        assert violations(page) == []
        page.click("#camera-switch")
        page.wait_for_selector("#camera-view:visible")
        page.wait_for_selector(SETTLED)
        assert violations(page) == []


def test_a_model_that_knows_nothing_and_a_guess_on_its_way(
    open_page: Open, draw: Draw, violations: Violations, screen: Screen
) -> None:
    with serve(Fake(classes=[])) as fake:
        page = open_page(fake.address, **screen)
        assert violations(page) == []
    with serve(Fake(hold=threading.Event())) as fake:
        page = open_page(fake.address, **screen)
        draw(page, APPLE)
        page.wait_for_selector("#guesses[aria-busy=true]")
        assert violations(page) == []
        assert fake.hold is not None
        fake.hold.set()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about methods at two heads with two seeds each, and a bound."""
    folder = tmp_path_factory.mktemp("report")
    write_report_runs(folder / "runs")
    return write_page(find_runs([folder / "runs"]), folder / "report.html", "A report")


def test_a_report(open_page: Open, report: Path, violations: Violations, screen: Screen) -> None:
    page = open_page(report.as_uri(), **screen)
    assert violations(page) == []
    for summary in page.locator("details:not([open]) > summary").all():
        if summary.is_visible():
            summary.click()
    page.locator("#figure-accuracy .legend button").first.focus()
    page.keyboard.press("Enter")
    assert violations(page) == []


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page that has no scripts."""
    contexts = []

    def visit_(address: str, **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(address)
        return page

    yield visit_
    for context in contexts:
        context.close()


def test_what_check_found(visit: Callable[..., Any], tmp_path: Path, violations: Violations, screen: Screen) -> None:
    read = Read("train", "bee", Path("bee/1.png"), np.full((1, 28, 28), 90, np.uint8))
    found = [
        Suspect("label", "bee/1.png", "bee", "apple", 0.9, read),
        Suspect("near copy", "bee/2.png", "bee", "bee/1.png", 0.99, read),
        Suspect("small class", "apple", "apple", "3 pictures", 3.0),
    ]
    (tmp_path / "suspects.html").write_text(as_page(found, "pictures/january"))
    assert violations(visit((tmp_path / "suspects.html").as_uri(), **screen)) == []
