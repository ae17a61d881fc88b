"""The whole way with the real server and a real browser: draw, guess, teach, guess again, reload, undo."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stroke_reference import DRAWINGS

from clare.classifier.classifier import Classifier

pytestmark = [pytest.mark.browser, pytest.mark.slow]

KNOWN = ("bee", "cell phone", "soccer ball", "triangle")
SETTLED = "#guesses[aria-busy=false]"
APPLES = [each["strokes"] for each in DRAWINGS["simplified"] if each["word"] == "apple"]
OLD = {each["word"]: each["strokes"] for each in DRAWINGS["simplified"] if each["word"] in KNOWN}


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    """A model that was taught four classes, without the very drawings that the test makes."""
    with resources.files("clare.data").joinpath("embedded/quickdraw.npz").open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        images, names = archive["images"], archive["classes"].tolist()
    model = Classifier(tmp_path / "drawings", device="cpu")
    model.learn({name: list(images[names.index(name), 40:80]) for name in KNOWN})
    return tmp_path / "drawings"


@pytest.fixture
def address(model_path: Path) -> Iterator[str]:
    """The address of `clare serve` in a process of its own."""
    command = [sys.executable, "-m", "clare", "serve", str(model_path), "--port", "0", "--device", "cpu"]
    # Wide enough that the line with the address is not folded.
    environment = {**os.environ, "COLUMNS": "500", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        found = next(filter(None, (re.search(r"http://[\w.:]+", line) for line in server.stdout)), None)
        assert found, "the server ended before it said its address"
        yield found[0]
        server.terminate()


def guess(page: Any, draw: Callable[..., None], strokes: Any, **options: float) -> str:
    """Draw on a clean pad and return the first guess."""
    page.click("#clear")
    page.wait_for_selector("#invitation:visible")
    draw(page, strokes, **options)
    page.wait_for_selector(SETTLED)
    name: str = page.locator("#guess-rows .name").first.inner_text()
    return name


def test_draw_guess_teach_guess_reload_undo(
    open_page: Callable[..., Any], draw: Callable[..., None], address: str
) -> None:
    page = open_page(address)
    assert page.inner_text("#summary") == "knows 4 classes from 1 task"
    before = {word: guess(page, draw, strokes) for word, strokes in OLD.items()}
    assert before == {word: word for word in OLD}
    guess(page, draw, APPLES[7])
    assert page.inner_text("#verdict") == "None of these"

    for place in range(10):
        page.click("#clear")
        draw(page, APPLES[1 + place % 6], share=0.5 + 0.04 * place)
        page.click("#keep")
    assert page.inner_text("#kept-count") == "10 drawings, enough to teach"
    page.fill("#class-name", "apple")
    page.click("#teach")
    page.wait_for_selector("#job:visible")
    page.wait_for_selector("#teach-news:has-text('Learnt apple')", timeout=120_000)

    assert guess(page, draw, APPLES[7]) == "apple"
    assert {word: guess(page, draw, strokes) for word, strokes in OLD.items()} == before

    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.inner_text("#summary") == "knows 5 classes from 2 tasks"
    assert guess(page, draw, APPLES[7]) == "apple"

    page.click("#undo")
    assert page.inner_text("#undo-what") == "Learnt apple"
    page.click("#undo-confirm")
    page.wait_for_selector("#summary:has-text('knows 4 classes from 1 task')")
    assert guess(page, draw, APPLES[7]) != "apple"
    assert {word: guess(page, draw, strokes) for word, strokes in OLD.items()} == before
    assert page.locator("#problem").is_hidden()


def test_the_servers_refusal_is_shown(open_page: Callable[..., Any], draw: Callable[..., None], address: str) -> None:
    page = open_page(address)
    page.click("#undo")
    page.click("#undo-confirm")
    page.wait_for_selector("#summary:has-text('knows nothing yet')")
    assert page.locator("#undo").is_disabled()
    draw(page, APPLES[2])
    page.wait_for_selector(SETTLED)
    assert "Teach me" in page.inner_text("#invitation")
    page.click("#keep")
    page.evaluate("document.getElementById('class-name').removeAttribute('maxlength')")
    page.fill("#class-name", "a" * 300)
    page.click("#teach")
    page.wait_for_selector("#problem:visible")
    assert "class name" in page.inner_text("#problem-text")


def test_the_interface_is_described_for_everybody(
    browser: Any, address: str, violations: Callable[[Any], list[str]]
) -> None:
    for scheme, width in (("light", 1100), ("dark", 360)):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        page = context.new_page()
        page.goto(f"{address}/docs")
        assert violations(page) == []
        context.close()
