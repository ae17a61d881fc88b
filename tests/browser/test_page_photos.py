"""The page in a real browser with photos: chosen, dropped, and of the camera."""

import io
from typing import Any

import pytest
from fake_server import Fake, serve
from PIL import Image
from test_page import APPLE, SETTLED, Draw, Open, guessed

pytestmark = pytest.mark.browser


def jpeg(shade: int) -> dict[str, Any]:
    """A small photo to choose."""
    file = io.BytesIO()
    Image.new("RGB", (64, 48), (shade, 90, 200 - shade)).save(file, "JPEG")
    return {"name": f"photo {shade}.jpg", "mimeType": "image/jpeg", "buffer": file.getvalue()}


def test_photos_in_place_of_drawings(open_page: Open) -> None:
    with serve(Fake(is_drawing_model=False)) as fake:
        page = open_page(fake.address)
        assert page.locator("#pad").is_hidden()
        page.set_input_files("#files", [jpeg(20), jpeg(120)])
        assert guessed(page)[0] == "triangle"
        assert len(fake.asked("/predict")[-1].images) == 2
        page.click("#photo-list li:nth-child(2) button")
        assert page.get_attribute("#photo-list li:nth-child(2) button", "aria-pressed") == "true"
        page.click("#keep-photos")
        assert page.inner_text("#kept-count") == "2 of about 10 photos"
        page.fill("#class-name", "sky")
        page.click("#teach")
        page.wait_for_selector("#teach-news:has-text('Learnt sky')")
        question = fake.asked("/learn")[-1]
        assert question.labels == ["sky", "sky"]
        assert question.images == [jpeg(20)["buffer"], jpeg(120)["buffer"]]


def test_a_drawing_model_takes_files_until_something_is_drawn(open_page: Open, draw: Draw) -> None:
    with serve(Fake()) as fake:
        page = open_page(fake.address)
        page.set_input_files("#files", [jpeg(20), jpeg(120)])
        guessed(page)
        assert fake.asked("/predict")[-1].images == [jpeg(20)["buffer"], jpeg(120)["buffer"]]
        assert page.locator("#seen-figure").is_hidden()
        page.click("#keep-photos")
        assert page.inner_text("#kept-count") == "2 of about 10 drawings"
        page.set_input_files("#files", [jpeg(20)])
        draw(page, APPLE)
        guessed(page)
        assert fake.asked("/predict")[-1].images != [jpeg(20)["buffer"]]
        assert page.locator("#photo-list li").count() == 0
        assert page.locator("#seen-figure").is_visible()


def test_dropped_photos_are_guessed(open_page: Open) -> None:
    with serve(Fake(is_drawing_model=False)) as fake:
        page = open_page(fake.address)
        transfer = page.evaluate_handle(
            "async () => { const canvas = new OffscreenCanvas(8, 8); canvas.getContext('2d');"
            " const blob = await canvas.convertToBlob(); const transfer = new DataTransfer();"
            " transfer.items.add(new File([blob], 'dropped.png', { type: 'image/png' })); return transfer; }"
        )
        page.dispatch_event("#drop-zone", "drop", {"dataTransfer": transfer})
        assert guessed(page)[0] == "triangle"
        assert len(fake.asked("/predict")[-1].images) == 1


@pytest.mark.parametrize("is_drawing_model", [False, True])
def test_the_camera_is_guessed_and_taught_from(open_page: Open, is_drawing_model: bool) -> None:
    with serve(Fake(is_drawing_model=is_drawing_model)) as fake:
        page = open_page(fake.address, permissions=["camera"])
        page.click("#camera-switch")
        page.wait_for_selector("#verdict:has-text('triangle')")
        assert fake.asked("/predict")[-1].images[0].startswith(b"\xff\xd8")
        page.hover("#camera-keep")
        page.mouse.down()
        page.wait_for_selector("#kept img >> nth=2")
        page.mouse.up()
        number = page.locator("#kept img").count()
        page.focus("#camera-keep")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"#kept img >> nth={number}")
        page.fill("#class-name", "test picture")
        page.click("#teach")
        page.wait_for_selector("#teach-news:has-text('Learnt test picture')")
        assert fake.asked("/learn")[-1].labels == ["test picture"] * (number + 1)
        page.click("#camera-switch")
        assert page.locator("#camera-view").is_hidden()
        page.wait_for_selector(SETTLED)


def test_without_leave_the_camera_is_said_to_be_unusable(open_page: Open) -> None:
    with serve(Fake(is_drawing_model=False)) as fake:
        page = open_page(fake.address)
        page.evaluate("() => { navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('no leave')); }")
        page.click("#camera-switch")
        page.wait_for_selector("#problem-text:has-text('The camera cannot be used: no leave')")
        assert page.locator("#camera-keep").is_hidden()


def test_files_take_the_place_of_the_camera(open_page: Open) -> None:
    with serve(Fake(is_drawing_model=False)) as fake:
        page = open_page(fake.address, permissions=["camera"])
        page.click("#camera-switch")
        page.wait_for_selector("#verdict:has-text('triangle')")
        page.set_input_files("#files", [jpeg(20)])
        page.wait_for_selector(SETTLED)
        assert page.locator("#camera-view").is_hidden()
        assert fake.asked("/predict")[-1].images == [jpeg(20)["buffer"]]
