"""The HTTP interface, on a fake model."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_service import bomb, form, many_scans, png
from fake_teacher import commit
from fastapi.testclient import TestClient
from httpx import Response

Client = Callable[..., TestClient]


def post(client: TestClient, path: str, *fields: tuple[str, str, bytes], **more: Any) -> Response:
    """Send a form."""
    body, headers = form(*fields)
    return client.post(path, content=body, headers=headers | more.pop("headers", {}), **more)


def images(*values: int) -> list[tuple[str, str, bytes]]:
    """Return the fields of even images."""
    return [("images", f"{number}.png", png(value)) for number, value in enumerate(values)]


def ended(client: TestClient, job: str) -> dict[str, Any]:
    """Wait for a job."""
    while True:
        answer: dict[str, Any] = client.get(f"/jobs/{job}").json()
        if answer["state"] in ("done", "failed"):
            return answer
        time.sleep(0.01)


def refused(response: Response, status: int, *words: str) -> None:
    """Make sure that an answer is a refusal with a sentence."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["detail"]
    for word in words:
        assert word in response.json()["detail"]


def test_the_server_says_that_it_is_there(client: Client) -> None:
    assert client().get("/healthz").json() == {"status": "ok", "version": 1}


def test_the_model_is_described(client: Client) -> None:
    answer = client(token="secret").get("/model").json()
    date = "2026-01-01T00:00:00+00:00"
    assert answer == {
        "version": 1,
        "name": "model",
        "is_drawing_model": True,
        "image_size": 28,
        "channels": 1,
        "classes": [
            {"name": name, "task": 1, "taught_at": date, "num_images": 10, "held_back": None}
            for name in ("dark", "bright")
        ],
        "capacity": {"num_coordinates": 1000, "num_free": 750, "used": 0.25},
        "tasks_left": 3,
        "history": [{"number": 1, "kind": "learn", "at": date, "classes": ["dark", "bright"], "report": {}}],
        "needs_token": True,
        "learning": None,
    }


def test_images_are_answered_in_their_order(client: Client) -> None:
    answer = post(client(), "/predict", *images(0, 255, 51)).json()
    assert answer["version"] == 1
    names = [[guess["name"] for guess in each["guesses"]] for each in answer["answers"]]
    assert names == [["dark", "bright"], ["bright", "dark"], ["dark", "bright"]]
    assert [guess["probability"] for guess in answer["answers"][2]["guesses"]] == pytest.approx([0.8, 0.2])


def test_the_number_of_names_and_the_threshold_are_each_requests_own(client: Client) -> None:
    server = client()
    one = post(server, "/predict?top=1&threshold=0.4", *images(0)).json()["answers"][0]
    assert ([guess["name"] for guess in one["guesses"]], one["is_unknown"]) == (["dark"], True)
    assert not post(server, "/predict?threshold=0.41", *images(0)).json()["answers"][0]["is_unknown"]
    assert not post(server, "/predict", *images(0)).json()["answers"][0]["is_unknown"]


@pytest.mark.parametrize("query", ["top=0", "top=x", "threshold=1.5", "threshold=nan", "top=1001"])
def test_queries_out_of_bounds_are_refused(client: Client, query: str) -> None:
    refused(post(client(), f"/predict?{query}", *images(0)), 422, query.split("=")[0])


def test_an_unreadable_image_is_named(client: Client) -> None:
    fields = [*images(0), ("images", "cut.png", png(7, (300, 300))[:100]), ("images", "text.png", b"hello")]
    refused(post(client(), "/predict", *fields[:2]), 422, "'cut.png'")
    refused(post(client(), "/predict", fields[0], fields[2]), 422, "'text.png'")


def test_an_image_is_known_by_its_bytes_whatever_its_name(client: Client) -> None:
    assert post(client(), "/predict", ("images", "a.exe", png(255, kind="GIF"))).status_code == 200


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(client: Client) -> None:
    refused(post(client(), "/predict", ("images", "bomb.bmp", bomb(8_000))), 413, "'bomb.bmp'", "8000 x 8000")
    refused(post(client(), "/predict", ("images", "bomb.bmp", bomb(30_000))), 413, "'bomb.bmp'", "pixels")
    refused(post(client(image_pixels=783), "/predict", *images(0)), 413, "'0.png'", "28 x 28")


def test_an_image_that_costs_too_much_is_refused_wherever_it_comes(client: Client) -> None:
    server = client(predict_pixels=1600, learn_pixels=1600)
    scans = ("images", "scans.jpg", many_scans(20_000))
    refused(post(server, "/predict", scans), 422, "'scans.jpg'", "scans")
    refused(post(server, "/learn", scans, ("labels", "", b"a")), 422, "'scans.jpg'", "scans")
    refused(post(server, "/predict", *images(0, 0, 0)), 413, "1600 pixels in all")
    refused(post(server, "/learn", *images(0, 0, 0), *[("labels", "", b"a")] * 3), 413, "1600 pixels in all")
    assert post(server, "/predict", *images(0, 0)).status_code == 200


def test_an_image_that_takes_too_long_is_refused_and_blocks_no_other(client: Client) -> None:
    server = client(image_seconds=1e-6)
    for _ in range(3):
        refused(post(server, "/predict", *images(0)), 422, "'0.png'", "seconds to decode")


def test_requests_without_images_or_with_too_many_are_refused(client: Client) -> None:
    server = client(predict_images=2)
    refused(post(server, "/predict"), 422, "no images")
    refused(post(server, "/predict", *images(0, 0, 0)), 413, "2")
    refused(server.post("/predict", json={}), 415)
    refused(post(server, "/predict", ("pictures", "a", b"")), 422, "'pictures'", "'images'")


def test_sizes_are_limited(client: Client) -> None:
    server = client(predict_bytes=2000, image_bytes=500)
    refused(post(server, "/predict", ("images", "a", b"x" * 600)), 413, "'a'", "500 bytes")
    refused(post(server, "/predict", *[("images", "a", b"x" * 400)] * 5), 413, "2000 bytes")


def test_a_body_that_does_not_tell_its_length_is_limited_too(client: Client) -> None:
    body, headers = form(*[("images", "a", b"x" * 400)] * 20)
    chunks = (body[start : start + 100] for start in range(0, len(body), 100))
    refused(client(predict_bytes=2000).post("/predict", content=chunks, headers=headers), 413, "2000 bytes")


def test_too_many_bytes_under_way_are_refused_for_now(client: Client) -> None:
    response = post(client(memory_bytes=100), "/predict", *images(0))
    refused(response, 429)
    assert response.headers["retry-after"] == "1"


def test_too_many_waiting_images_are_refused_for_now(client: Client) -> None:
    response = post(client(waiting_images=1), "/predict", *images(0, 0))
    refused(response, 429)
    assert response.headers["retry-after"] == "1"


def test_a_model_without_classes_says_so(client: Client, folder: Path) -> None:
    commit(folder, 1, [])
    refused(post(client(), "/predict", *images(0)), 409, "no classes")


def test_labelled_images_are_learnt_by_a_job_and_the_model_is_exchanged(client: Client, folder: Path) -> None:
    server = client()
    (folder / "hold").touch()
    fields = [*images(10, 20), ("labels", "", b"grey"), ("labels", "", "Ä/..".encode())]
    answer = post(server, "/learn", *fields)
    assert answer.status_code == 202
    job = answer.json()["job"]
    while (shown := server.get(f"/jobs/{job}").json())["progress"] == 0:
        time.sleep(0.01)
    assert shown == {
        "id": job,
        "state": "running",
        "progress": 0.5,
        "step": "learning",
        "seconds_left": 2.0,
        "error": None,
        "change": None,
    }
    assert server.get("/model").json()["learning"] == job
    assert post(server, "/predict", *images(0)).json()["version"] == 1
    refused(server.post("/undo"), 409, "learning")
    (folder / "hold").unlink()
    shown = ended(server, job)
    assert (shown["state"], shown["progress"], shown["seconds_left"]) == ("done", 1.0, None)
    assert shown["change"]["classes"] == ["grey", "Ä/.."]
    assert post(server, "/predict", *images(0)).json()["version"] == 2
    assert server.get("/model").json()["learning"] is None


@pytest.mark.parametrize(
    ("orders", "words"), [("fail", "learnt before"), ("crash", "exit code 3"), ("babble", "the server's log")]
)
def test_a_job_that_fails_leaves_the_model_and_says_why(client: Client, folder: Path, orders: str, words: str) -> None:
    server = client()
    (folder / "orders").write_text(orders)
    job = post(server, "/learn", *images(1), ("labels", "", b"a")).json()["job"]
    shown = ended(server, job)
    assert shown["state"] == "failed"
    assert words in shown["error"]
    assert server.get("/healthz").json()["version"] == 1
    (folder / "orders").unlink()
    job = post(server, "/learn", *images(1), ("labels", "", b"a")).json()["job"]
    assert ended(server, job)["state"] == "done"


def test_the_queue_of_jobs_is_bounded(client: Client, folder: Path) -> None:
    server = client(waiting_jobs=1)
    (folder / "hold").touch()
    fields = [*images(1), ("labels", "", b"a")]
    jobs = [post(server, "/learn", *fields).json()["job"] for _ in range(2)]
    response = post(server, "/learn", *fields)
    refused(response, 429)
    assert int(response.headers["retry-after"]) >= 1
    (folder / "hold").unlink()
    assert [ended(server, job)["state"] for job in jobs] == ["done", "done"]
    other = [*images(1), ("labels", "", b"b")]
    assert ended(server, post(server, "/learn", *other).json()["job"])["state"] == "done"


def test_known_and_new_classes_together_are_refused_before_a_job_is_made(client: Client) -> None:
    server = client()
    fields = [*images(0, 1, 2), *(("labels", "", label) for label in (b"dark", b"bright", b"dim"))]
    known, rest = "the classes 'dark', 'bright' are known already", "(mode 'update'), or teach 'dim' without them"
    refused(post(server, "/learn", *fields), 409, known, rest)
    refused(post(server, "/learn?mode=update", *fields), 409, "knows no class 'dim'")
    assert server.get("/model").json()["learning"] is None


def test_a_refused_upload_gives_its_place_in_the_queue_back(client: Client) -> None:
    server = client(waiting_jobs=0)
    for _ in range(3):
        refused(post(server, "/learn", ("images", "a.png", b"no image"), ("labels", "", b"a")), 422, "'a.png'")
    assert post(server, "/learn", *images(1), ("labels", "", b"a")).status_code == 202


@pytest.mark.parametrize(
    "fields",
    [
        [],
        images(1, 2),
        [*images(1, 2), ("labels", "", b"a")],
        [("labels", "", b"a")],
        [("archive", "", b""), *images(1), ("labels", "", b"a")],
        [("archive", "", b""), ("archive", "", b"")],
        [*images(1), ("labels", "", b" ")],
        [*images(1), ("labels", "", b"\xff\0")],
        [("archive", "a.zip", b"no zip")],
    ],
)
def test_forms_that_do_not_pair_are_refused(client: Client, fields: list[tuple[str, str, bytes]]) -> None:
    refused(post(client(), "/learn", *fields), 422)


def test_labels_that_are_not_utf8_are_refused_and_never_become_one_class(client: Client) -> None:
    fields = [*images(1, 2), ("labels", "", b"caf\xe9"), ("labels", "", b"caf\xe8")]
    refused(post(client(), "/learn", *fields), 422, "the label of '0.png' is not UTF-8")


def test_the_number_of_images_and_classes_to_learn_is_limited(client: Client) -> None:
    server = client(learn_images=2, learn_classes=1)
    labels = [("labels", "", name) for name in (b"a", b"b", b"c")]
    refused(post(server, "/learn", *images(1, 2, 3), *labels), 413, "parts")
    refused(post(server, "/learn", *images(1, 2), *labels[:2]), 413, "classes")


def test_the_last_change_is_undone(client: Client, folder: Path) -> None:
    commit(folder, 2, ["dark", "bright", "new"])
    server = client()
    assert server.post("/undo").json()["change"]["kind"] == "undo"
    assert server.get("/model").json()["version"] == 3
    commit(folder, 1, ["dark", "bright"])
    refused(server.post("/undo"), 409, "nothing to undo")


def test_changes_by_other_processes_are_noticed(client: Client, folder: Path) -> None:
    server = client()
    commit(folder, 7, ["dark", "bright", "new"])
    while server.get("/healthz").json()["version"] != 7:
        time.sleep(0.02)
    assert len(server.get("/model").json()["classes"]) == 3


def test_a_folder_that_is_damaged_meanwhile_leaves_the_model_in_use(client: Client, folder: Path) -> None:
    server = client()
    (folder / "model.json").unlink()
    time.sleep(1.2)
    assert post(server, "/predict", *images(0)).status_code == 200


def test_a_manifest_that_cannot_be_read_is_told_and_the_watch_goes_on(
    client: Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = client()
    (folder / "model.json").write_text('{"version": []')
    while "the model goes on as version 1" not in caplog.text:
        time.sleep(0.02)
    commit(folder, 2, ["dark", "bright"])
    while server.get("/healthz").json()["version"] != 2:
        time.sleep(0.02)


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic secret", "Bearer", "Bearer secré".encode("latin-1")])
def test_changes_need_the_token(client: Client, folder: Path, header: str | bytes | None) -> None:
    commit(folder, 2, ["dark", "bright"])
    server = client(token="secret")
    headers = {} if header is None else {"authorization": header}
    refused(post(server, "/learn", *images(1), ("labels", "", b"a"), headers=headers), 401, "Bearer")
    refused(server.post("/undo", headers=headers), 401, "Bearer")
    assert post(server, "/predict", *images(0)).status_code == 200
    assert server.post("/undo", headers={"authorization": "bearer secret"}).status_code == 200


def test_pages_of_other_sites_cannot_change_the_model(client: Client) -> None:
    server = client()
    for origin in ("http://evil.example", "null", "http://[", "http://testserver:81"):
        refused(server.post("/undo", headers={"origin": origin}), 403, "another site")
    refused(server.post("/undo", headers={"origin": "http://testserver"}), 409, "nothing to undo")


def test_a_server_answers_only_to_its_own_names(client: Client) -> None:
    server = client(hosts=("localhost", "[::1]"))
    for host in ("localhost", "LOCALHOST:8000", "[::1]:8000", "[::1]"):
        assert server.get("/healthz", headers={"host": host}).status_code == 200
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", ""):
        refused(server.get("/healthz", headers={"host": host}), 403, "--allow-host")


def test_an_unknown_job_is_told(client: Client) -> None:
    refused(client().get("/jobs/none"), 404, "no such job")


def test_the_page_and_its_files_are_served(client: Client) -> None:
    server = client()
    assert server.get("/").headers["content-type"].startswith("text/html")
    assert server.get("/assets/index.html").status_code == 200
    for path in ("/assets/../app.py", "/assets/%2e%2e/app.py"):
        assert server.get(path).status_code == 404


def test_the_interface_is_documented_without_anything_from_elsewhere(client: Client) -> None:
    server = client()
    page = server.get("/docs")
    assert page.status_code == 200
    assert not any(word in page.text.replace("http-equiv", "") for word in ("http", "<script"))
    for words in ("POST /predict", "GET /jobs/{number}", "threshold", "labels", "Needs the token", "429"):
        assert words in page.text
    assert server.get("/redoc").status_code == 404
    paths = server.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/healthz", "/model", "/predict", "/learn", "/jobs/{number}", "/undo"}
    form_of = paths["/learn"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert set(form_of["properties"]) == {"archive", "images", "labels"}
