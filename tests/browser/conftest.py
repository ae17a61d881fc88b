"""A real browser for the page, and the means to draw in it."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from fake_server import Fake, serve

Points = Sequence[Sequence[float]]
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
"""Chromium's own moving test picture in place of a camera."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; where it is missing the tests fail, for nothing was tested."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("Playwright is not installed, so the page was not tested; run pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("Chromium is not installed, so the page was not tested; run apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *CAMERA])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address in a fresh visit; an error in the page's own code fails the test."""
    contexts, mistakes = [], []

    def open_(address: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, "locale": "en-GB", **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert mistakes == []


@pytest.fixture(scope="session")
def violations() -> Callable[[Any], list[str]]:
    """What axe finds wrong with a page for people who use a keyboard, a screen reader or strong contrast."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        pytest.fail("axe is not installed, so accessibility was not tested; run pip install axe-playwright-python")
    axe = Axe()

    def violations_(page: Any) -> list[str]:
        found = axe.run(page).response
        assert found["passes"], "axe looked at nothing"
        nodes = [(each["id"], node) for each in found["violations"] for node in each["nodes"]]
        return [f"{rule}: {node['html'][:200]}: {node['failureSummary']}" for rule, node in nodes]

    return violations_


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A fake server for a drawing model."""
    with serve(Fake()) as fake:
        yield fake


@pytest.fixture
def draw() -> Callable[..., None]:
    """Draw strokes of the 256 box with the mouse, in the middle of the pad."""

    def draw_(page: Any, strokes: Sequence[Points], share: float = 0.8, nudge: float = 0.0) -> None:
        page.locator("#pad").evaluate("(pad) => pad.scrollIntoView({ block: 'center' })")
        box = page.locator("#pad").bounding_box()
        side = box["width"] * share
        left, top = (box[axis] + box["width"] * ((1 - share) / 2 + nudge) for axis in ("x", "y"))
        for stroke in strokes:
            places = [(left + x * side / 255, top + y * side / 255) for x, y in stroke]
            page.mouse.move(*places[0])
            page.mouse.down()
            for place in places[1:]:
                page.mouse.move(*place)
            page.mouse.up()

    return draw_
