"""Strokes drawn in the page become the pictures that the embedded model was taught."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_server import Fake
from PIL import Image
from stroke_reference import DRAWINGS, SIDE, Picture, Stroke, embedded_picture, render, simplify

# The embedded values were rounded to thousandths before they became bytes, so one level of 255 may differ.
ONE_LEVEL = 1


def farthest(one: Picture, other: Picture) -> int:
    """The largest difference of two pictures in levels of 255."""
    return int(np.abs(one.astype(int) - other.astype(int)).max())


def random_strokes(seed: int) -> list[Stroke]:
    """Walks of a few steps on a canvas of some hundred pixels."""
    random = np.random.RandomState(seed)
    return [
        [(float(x), float(y)) for x, y in np.cumsum(random.normal(0, 20, size=(random.randint(2, 30), 2)), axis=0)]
        for _ in range(random.randint(1, 5))
    ]


@pytest.mark.parametrize("drawing", DRAWINGS["simplified"], ids=lambda each: f"{each['word']} {each['drawing']}")
def test_the_reference_renders_simplified_strokes_as_embedded(drawing: dict[str, Any]) -> None:
    picture = embedded_picture(drawing["word"], drawing["drawing"])
    assert farthest(render(drawing["strokes"]), picture) <= ONE_LEVEL


@pytest.mark.parametrize("drawing", DRAWINGS["raw"], ids=lambda each: f"{each['word']} {each['drawing']}")
def test_the_reference_renders_raw_strokes_as_embedded(drawing: dict[str, Any]) -> None:
    picture = embedded_picture(drawing["word"], drawing["drawing"])
    assert farthest(render(simplify(drawing["strokes"])), picture) <= ONE_LEVEL


@pytest.mark.browser
def test_the_page_renders_as_embedded(open_page: Callable[..., Any], fake: Fake) -> None:
    page = open_page(fake.address)
    ask = "async ([name, strokes]) => [...(await import('/assets/strokes.js'))[name](strokes)]"
    for function, drawings in (("renderStrokes", DRAWINGS["simplified"]), ("drawingOf", DRAWINGS["raw"])):
        for drawing in drawings:
            values = page.evaluate(ask, [function, drawing["strokes"]])
            picture = np.array(values, dtype=np.uint8).reshape(SIDE, SIDE)
            assert farthest(picture, embedded_picture(drawing["word"], drawing["drawing"])) <= ONE_LEVEL


@pytest.mark.browser
def test_the_page_renders_as_the_reference(open_page: Callable[..., Any], fake: Fake) -> None:
    page = open_page(fake.address)
    drawings = [random_strokes(seed) for seed in range(40)]
    pictures = page.evaluate(
        "async (drawings) => { const { drawingOf } = await import('/assets/strokes.js');"
        " return drawings.map((strokes) => [...drawingOf(strokes)]); }",
        drawings,
    )
    for strokes, values in zip(drawings, pictures, strict=True):
        picture = np.array(values, dtype=np.uint8).reshape(SIDE, SIDE)
        assert farthest(picture, render(simplify(strokes))) <= ONE_LEVEL


@pytest.mark.browser
def test_dots_and_empty_drawings_are_nothing_to_see(open_page: Callable[..., Any], fake: Fake) -> None:
    page = open_page(fake.address)
    ask = "async (strokes) => (await import('/assets/strokes.js')).drawingOf(strokes)"
    for strokes in ([], [[[0.5, 0.5]]], [[[0.1, 0.1]], [[0.9, 0.2]]], [[[0.3, 0.3], [0.3, 0.3]]]):
        assert page.evaluate(ask, strokes) is None


@pytest.mark.browser
def test_the_picture_sent_is_grey_and_like_the_embedded_one(
    open_page: Callable[..., Any], fake: Fake, draw: Callable[..., None]
) -> None:
    """Places on the screen are whole pixels, so a drawing by mouse is near the embedded one, not the same."""
    differences, shares = [], []
    page = open_page(fake.address)
    for drawing in DRAWINGS["simplified"][2:6]:
        page.click("#clear")
        fake.questions.clear()
        draw(page, drawing["strokes"])
        page.wait_for_selector("#guesses[aria-busy=false]")
        image = Image.open(io.BytesIO(fake.asked("/predict")[-1].images[0]))
        assert (image.format, image.mode, image.size) == ("PNG", "L", (SIDE, SIDE))
        picture = np.asarray(image)
        embedded = embedded_picture(drawing["word"], drawing["drawing"])
        differences.append(np.abs(picture.astype(int) - embedded.astype(int)).mean())
        shares.append((picture.mean() / embedded.mean(), (picture > 0).mean() / (embedded > 0).mean()))
    assert np.mean(differences) < 8
    assert np.allclose(np.mean(shares, axis=0), 1, atol=0.05)
