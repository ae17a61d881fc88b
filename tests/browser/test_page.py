"""The page in a real browser, against canned answers."""

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fake_server import Fake, serve
from PIL import Image
from stroke_reference import DRAWINGS

pytestmark = pytest.mark.browser

Open = Callable[..., Any]
Draw = Callable[..., None]
BEE = next(each["strokes"] for each in DRAWINGS["simplified"] if each["word"] == "bee")
APPLE = DRAWINGS["simplified"][2]["strokes"]
COLOURS = ("color", "backgroundColor")
SETTLED = "#guesses[aria-busy=false]"


def guessed(page: Any) -> list[str]:
    """The names beside the bars, best first."""
    page.wait_for_selector(SETTLED)
    names: list[str] = page.locator("#guess-rows .name").all_inner_texts()
    return names


def keep(page: Any, draw: Draw, number: int) -> None:
    """Draw and keep some apples."""
    for place in range(number):
        draw(page, APPLE, share=0.5 + 0.04 * place)
        page.click("#keep")


def test_it_guesses_while_one_draws(open_page: Open, fake: Fake, draw: Draw) -> None:
    page = open_page(fake.address)
    assert page.locator("#invitation").is_visible()
    draw(page, BEE)
    assert guessed(page) == ["triangle", "bee", "apple", "none of these"]
    assert page.inner_text("#verdict") == "I see triangle"
    widths = page.eval_on_selector_all("#guess-rows .fill", "bars => bars.map((bar) => parseFloat(bar.style.width))")
    assert widths == pytest.approx([100 * 4 / 7, 100 * 2 / 7, 100 / 7, 10], abs=0.1)
    page.wait_for_selector("#guess-news:has-text('I see triangle')", state="attached")
    page.click("#clear")
    page.wait_for_selector("#invitation:visible")


def test_it_says_none_of_these(open_page: Open, fake: Fake, draw: Draw) -> None:
    fake.unknown = 0.93
    page = open_page(fake.address)
    draw(page, BEE)
    page.wait_for_selector("#guesses.unknown")
    assert page.inner_text("#verdict") == "None of these"
    assert page.inner_text("#condition") == "If it is one of them after all:"
    assert page.locator("#guess-rows li.none .figure").inner_text() == "93 %"


def test_a_newer_question_aborts_the_older(open_page: Open, fake: Fake, draw: Draw) -> None:
    fake.hold = threading.Event()
    page = open_page(fake.address)
    aborted: list[str] = []
    page.on("requestfailed", lambda request: aborted.append(request.url))
    draw(page, BEE[:1])
    page.wait_for_timeout(300)
    draw(page, BEE[1:2])
    page.wait_for_timeout(300)
    fake.hold.set()
    assert guessed(page)[0] == "triangle"
    assert any("/predict" in url for url in aborted)
    assert page.locator("#problem").is_hidden()


def test_strokes_are_undone_one_by_one(open_page: Open, fake: Fake, draw: Draw) -> None:
    page = open_page(fake.address)
    draw(page, BEE[:2])
    page.wait_for_selector(SETTLED)
    page.click("#undo-stroke")
    page.wait_for_selector(SETTLED)
    assert page.locator("#seen-figure").is_visible()
    page.click("#undo-stroke")
    page.wait_for_selector(SETTLED)
    assert page.locator("#seen-figure").is_hidden()


def test_teaching_by_drawing(open_page: Open, fake: Fake, draw: Draw) -> None:
    page = open_page(fake.address)
    keep(page, draw, 4)
    assert page.inner_text("#kept-count") == "4 of about 10 drawings"
    page.click("#kept li:nth-child(2) .remove")
    assert page.inner_text("#kept-count") == "3 of about 10 drawings"
    assert page.locator("#teach").is_disabled()
    page.fill("#class-name", "  pear ")
    assert page.inner_text("#teach") == "Teach pear"
    page.check("#quick")
    page.click("#teach")
    page.wait_for_selector("#job:visible")
    assert page.locator("#undo").is_disabled()
    page.wait_for_selector("#teach-news:has-text('Learnt pear')")
    question = fake.asked("/learn")[-1]
    assert (question.labels, len(question.images), question.query) == (["pear"] * 3, 3, {"mode": ["quick"]})
    assert Image.open(io.BytesIO(question.images[0])).mode == "L"
    assert page.locator(".chips li", has_text="pear").count() == 1
    assert page.inner_text("#kept-count") == "0 of about 10 drawings"
    draw(page, APPLE)
    assert guessed(page)[0] == "pear"
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.inner_text("#summary") == "knows 4 classes from 3 tasks"


def test_more_of_a_known_class_is_an_update(open_page: Open, fake: Fake, draw: Draw) -> None:
    page = open_page(fake.address)
    keep(page, draw, 1)
    page.fill("#class-name", "bee")
    assert page.inner_text("#teach") == "Give more of bee"
    assert page.locator("#quick-label").is_hidden()
    page.click("#teach")
    page.wait_for_selector("#teach-news:has-text('Learnt')")
    assert fake.asked("/learn")[-1].query == {"mode": ["update"]}


def test_a_job_is_watched_again_after_a_reload(open_page: Open, fake: Fake, draw: Draw) -> None:
    fake.job_steps = 8
    page = open_page(fake.address)
    keep(page, draw, 1)
    page.fill("#class-name", "pear")
    page.click("#teach")
    page.wait_for_selector("#job:visible")
    page.reload()
    page.wait_for_selector("#job:visible")
    page.wait_for_selector("#teach-news:has-text('Learnt pear')")


def test_a_failed_job_keeps_the_drawings(open_page: Open, fake: Fake, draw: Draw) -> None:
    page = open_page(fake.address)
    keep(page, draw, 2)
    page.fill("#class-name", "pear")
    page.click("#teach")
    page.wait_for_selector("#job:visible")
    fake.failure = "The child that was teaching has died; send the pictures again"
    page.wait_for_selector(f"#problem:has-text('{fake.failure}')")
    assert page.inner_text("#kept-count") == "2 of about 10 drawings"
    assert page.locator("#teach").is_enabled()


def test_a_refusal_is_shown_in_the_servers_words(open_page: Open, fake: Fake, draw: Draw) -> None:
    fake.failure = "'pear' has 1 picture, but at least 2 are needed; add more"
    page = open_page(fake.address)
    keep(page, draw, 1)
    page.fill("#class-name", "pear")
    page.press("#class-name", "Enter")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem-text") == fake.failure
    page.click("#problem-close")
    assert page.locator("#problem").is_hidden()


def test_undo_asks_once(open_page: Open, fake: Fake) -> None:
    page = open_page(fake.address)
    page.click("#undo")
    assert page.inner_text("#undo-what") == "Learnt triangle"
    page.click("#undo-cancel")
    assert not fake.asked("/undo")
    page.click("#undo")
    page.click("#undo-confirm")
    page.wait_for_selector("#summary:has-text('knows 2 classes')")
    assert len(fake.asked("/undo")) == 1
    assert page.locator("#history li").first.inner_text().startswith("Taken back: Learnt triangle")
    assert page.locator("#history .gone").inner_text().startswith("Learnt triangle")
    page.click("#undo")
    assert page.inner_text("#undo-what") == "Learnt apple, bee"


def test_the_token_is_asked_for_and_kept_for_the_visit(open_page: Open) -> None:
    with serve(Fake(token="sesame")) as fake:
        page = open_page(fake.address)
        page.click("#undo")
        page.click("#undo-confirm")
        page.wait_for_selector("#problem:has-text('needs the server')")
        page.fill("#token", "sesame")
        page.press("#token", "Enter")
        page.reload()
        page.wait_for_selector("body[data-ready]")
        page.click("#undo")
        page.click("#undo-confirm")
        page.wait_for_selector("#summary:has-text('knows 2 classes')")
        assert [question.token for question in fake.asked("/undo")] == [None, "sesame"]


def test_drawing_and_teaching_by_keyboard_alone(open_page: Open, fake: Fake) -> None:
    page = open_page(fake.address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "pad"
    page.keyboard.press("Space")
    assert page.inner_text("#pen") == "Pen is down."
    for key in ["ArrowRight"] * 6 + ["Shift+ArrowDown"] * 3 + ["ArrowLeft"] * 6:
        page.keyboard.press(key)
    page.keyboard.press("Space")
    assert guessed(page)[0] == "triangle"
    page.keyboard.press("Enter")
    assert page.inner_text("#kept-count") == "1 of about 10 drawings"
    while page.evaluate("document.activeElement.id") != "class-name":
        page.keyboard.press("Tab")
    page.keyboard.type("corner")
    page.keyboard.press("Enter")
    page.wait_for_selector("#teach-news:has-text('Learnt corner')")


def test_every_control_has_a_name_and_a_visible_focus(open_page: Open, fake: Fake, draw: Draw) -> None:
    page = open_page(fake.address)
    keep(page, draw, 1)
    page.focus("#pad")
    for _ in range(30):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "() => { const here = document.activeElement; return ["
            "here.ariaLabel || here.labels?.[0]?.textContent.trim() || here.textContent.trim(),"
            "here === document.body ? 'solid' : getComputedStyle(here).outlineStyle]; }"
        )
        assert name
        assert outline == "solid"


def test_a_model_that_knows_nothing_invites_to_teach(open_page: Open, draw: Draw) -> None:
    with serve(Fake(classes=[])) as fake:
        page = open_page(fake.address)
        draw(page, APPLE)
        page.wait_for_selector(SETTLED)
        assert "Teach me" in page.inner_text("#invitation")
        assert page.locator("#undo").is_disabled()
        assert not fake.asked("/predict")


def test_names_are_shown_as_text(open_page: Open) -> None:
    name = "<img src=x onerror=alert(1)>"
    with serve(Fake(classes=[(name, 1)])) as fake:
        page = open_page(fake.address)
        assert name in page.inner_text("#tasks")
        assert page.locator("#tasks img").count() == 0


def test_nothing_is_loaded_from_elsewhere(open_page: Open, fake: Fake) -> None:
    page = open_page(fake.address)
    loaded = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(loaded) > 5
    assert all(name.startswith(f"{fake.address}/") for name in loaded)
    refused = page.evaluate(
        "() => new Promise((tell) => { addEventListener('securitypolicyviolation', (event) => tell(event.blockedURI));"
        " fetch('http://elsewhere.invalid/').catch(() => null); })"
    )
    assert refused == "http://elsewhere.invalid/"


CONTRASTS = """() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [red, green, blue] = parts.map((p) => (p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (node) => {
    const colour = getComputedStyle(node).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" && node.parentElement ? ground(node.parentElement) : colour;
  };
  const shown = [...document.querySelectorAll("body *")].filter(
    (node) => node.checkVisibility() && !node.disabled && !node.closest(".unseen, .slot, canvas") &&
      [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()),
  );
  return shown.map((node) => {
    const [one, other] = [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a);
    return [node.id || node.className || node.tagName, node.textContent.trim(), (one + 0.05) / (other + 0.05)];
  });
}"""
"""What each visible text is called, what it says, and its contrast as WCAG 2 has it."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(open_page: Open, fake: Fake, draw: Draw, scheme: str) -> None:
    page = open_page(fake.address, color_scheme=scheme)
    keep(page, draw, 1)
    draw(page, APPLE)
    guessed(page)
    found = page.evaluate(CONTRASTS)
    assert len(found) > 20
    assert [each for each in found if each[2] < 4.5] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_is_wide_enough(open_page: Open, draw: Draw, scheme: str) -> None:
    classes = [("apple", 1), ("a class with a name that is rather long and goes on", 2)]
    with serve(Fake(classes=classes, token="sesame")) as fake:
        page = open_page(
            fake.address, viewport={"width": 360, "height": 760}, has_touch=True, is_mobile=True, color_scheme=scheme
        )
        draw(page, APPLE)
        page.fill("#class-name", "a class with a name that is rather long too")
        page.wait_for_selector(SETTLED)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        ink, ground = (page.evaluate(f"parseInt(getComputedStyle(document.body).{what}.slice(4))") for what in COLOURS)
        assert (ink < ground) == (scheme == "light")


def test_a_finger_draws(open_page: Open, fake: Fake) -> None:
    page = open_page(fake.address, viewport={"width": 360, "height": 760}, has_touch=True, is_mobile=True)
    box = page.locator("#pad").bounding_box()
    session = page.context.new_cdp_session(page)
    places = [(box["x"] + 40 + 10 * step, box["y"] + 60 + 5 * step) for step in range(20)]
    for kind, where in [("touchStart", places[:1]), *(("touchMove", [place]) for place in places), ("touchEnd", [])]:
        points = [{"x": x, "y": y} for x, y in where]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert guessed(page)[0] == "triangle"
    assert page.evaluate("scrollY") == 0
