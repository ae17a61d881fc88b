"""Multipart bodies, however they are cut into chunks."""

import asyncio
import gc
import resource
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from fake_service import form
from hypothesis import given
from hypothesis import strategies as st

from clare.serve.limits import Refusal
from clare.serve.uploads import FormLimits, Part, read_form

LIMITS = FormLimits({"images": 100, "labels": 20}, 2000, 5)
contents = st.binary(max_size=60).filter(lambda content: b"\r\n--xyz" not in b"\r\n" + content)
fields = st.tuples(st.sampled_from(["images", "labels"]), st.sampled_from(["", "a.png", "ü b.png"]), contents).filter(
    lambda field: field[0] == "images" or len(field[2]) <= 20
)


async def chunks_of(body: bytes, sizes: Sequence[int], taken: list[int] | None = None) -> AsyncIterator[bytes]:
    """Yield a body in chunks of these sizes, then of the last of them."""
    start, number = 0, 0
    while start < len(body):
        size = sizes[min(number, len(sizes) - 1)]
        yield body[start : start + size]
        start, number = start + size, number + 1
        if taken is not None:
            taken.append(start)


def read(body: bytes, headers: dict[str, str], sizes: Sequence[int] = (64,), folder: Path | None = None) -> list[Part]:
    """Read a body in chunks."""
    return asyncio.run(read_form(headers, chunks_of(body, sizes), LIMITS, folder))


def refusal(body: bytes, headers: dict[str, str], folder: Path | None = None) -> Refusal:
    """Return why a body is refused."""
    with pytest.raises(Refusal) as caught:
        read(body, headers, folder=folder)
    return caught.value


def status(body: bytes, headers: dict[str, str], sizes: Sequence[int]) -> int:
    """Return the status with which a body is read or refused."""
    try:
        read(body, headers, sizes)
    except Refusal as refused:
        return refused.status
    return 200


@given(st.lists(fields, max_size=5), st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_the_parts_do_not_depend_on_the_chunks(sent: list[tuple[str, str, bytes]], sizes: list[int]) -> None:
    parts = read(*form(*sent), sizes)
    assert [(part.field, part.filename) for part in parts] == [field[:2] for field in sent]
    assert [part.content for part in parts] == [field[2] for field in sent]
    assert [part.size for part in parts] == [len(field[2]) for field in sent]


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_any_bytes_are_read_or_refused(body: bytes, sizes: list[int]) -> None:
    headers = {"content-type": "multipart/form-data; boundary=xyz"}
    for content in (body, b"--xyz\r\n" + body, form(("images", "", body))[0][: len(body)]):
        assert status(content, headers, sizes) in (200, 400, 413, 422)


def test_a_body_that_is_cut_off_is_refused() -> None:
    body, headers = form(("images", "a", b"x" * 30))
    for end in range(len(body) - 4):
        assert refusal(body[:end], headers).status == 400


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data", "multipart/mixed; boundary=xyz"])
def test_other_kinds_of_bodies_are_refused(kind: str) -> None:
    assert refusal(form()[0], {"content-type": kind}).status == 415


def test_an_odd_boundary_is_refused_or_read() -> None:
    assert refusal(b"", {"content-type": f"multipart/form-data; boundary={'x' * 5000}"}).status == 400


def test_a_part_that_is_too_large_is_refused_wherever_it_goes(tmp_path: Path) -> None:
    body, headers = form(("images", "big.png", b"x" * 101))
    for folder in (None, tmp_path):
        refused = refusal(body, headers, folder)
        assert refused.status == 413
        assert "'big.png'" in str(refused)
        assert "100 bytes" in str(refused)
    assert refusal(*form(("labels", "", b"x" * 21))).status == 413
    assert len(read(*form(("images", "", b"x" * 100)))) == 1


def test_a_body_that_is_too_large_is_not_read_to_its_end() -> None:
    body, headers = form(*[("images", "", b"x" * 99)] * 5)
    taken: list[int] = []
    limits = FormLimits({"images": 100}, 300, 50)
    with pytest.raises(Refusal, match="300 bytes"):
        asyncio.run(read_form(headers, chunks_of(body, [10], taken), limits))
    assert max(taken) <= 310


def test_a_body_that_says_it_is_too_large_is_not_read_at_all() -> None:
    body, headers = form(("images", "", b""))
    refused = refusal(body, headers | {"content-length": "2001"})
    assert refused.status == 413
    assert len(read(body, headers | {"content-length": "2000"})) == 1


def test_too_many_parts_and_unknown_fields_are_refused() -> None:
    assert refusal(*form(*[("labels", "", b"")] * 6)).status == 413
    refused = refusal(*form(("other", "", b"")))
    assert refused.status == 422
    assert "'other'" in str(refused)


def test_a_form_may_have_more_parts_than_a_process_may_have_open_files(tmp_path: Path) -> None:
    body, headers = form(*[("images", f"{number}.png", b"%d" % number) for number in range(200)])
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A new descriptor is the lowest free one.
    with (tmp_path / "lowest").open("w") as lowest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno() + 60, allowed[1]))
    try:
        limits = FormLimits({"images": 100}, 100_000, 500)
        parts = asyncio.run(read_form(headers, chunks_of(body, [1000]), limits, tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
    assert [part.content for part in parts] == [b"%d" % number for number in range(200)]


def test_the_files_of_a_refused_form_are_closed(tmp_path: Path) -> None:
    # Whoever is not closed warns, which is an error here.
    body, headers = form(("images", "", b"x"), ("other", "", b""))
    assert refusal(body, headers, tmp_path).status == 422
    cut = body[: body.index(b"x")] + b"x"
    assert refusal(cut, headers, tmp_path).status == 400
    gc.collect()


def test_bytes_are_counted_as_they_come_and_not_as_declared() -> None:
    body, headers = form(("images", "", b"x" * 50))
    taken: list[int] = []
    stream = chunks_of(body, [20])
    headers |= {"content-length": "1999"}
    asyncio.run(read_form(headers, stream, LIMITS, take=taken.append))
    assert (sum(taken), max(taken)) == (len(body), 20)
