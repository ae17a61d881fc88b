"""A cache file is used only when it is whole and fits, and nobody ever sees half of one."""

import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clare.data.cache import (
    MAGIC,
    VERSION,
    Contents,
    Fill,
    StaleCache,
    cache_folder,
    fingerprint,
    open_or_write,
    read_cache,
    write_cache,
    write_pixels,
)
from clare.data.store import ImageStore
from clare.errors import DataError


def some_images(num_images: int = 4) -> list[torch.Tensor]:
    """Return images of different sizes without a zero."""
    return [torch.full((3, 2 + place, 5 - place), 10 + place, dtype=torch.uint8) for place in range(num_images)]


def store_of(decoded: Contents) -> ImageStore:
    """Return a store of what a cache file holds."""
    return ImageStore(decoded.flat, decoded.sizes, 3, decoded.is_mapped)


def filled(images: Iterable[torch.Tensor | None], channels: int = 3) -> Fill:
    """Return what writes these images into a cache file."""
    return lambda file: write_pixels(file, images, channels)


def same(decoded: Contents, images: list[torch.Tensor]) -> bool:
    """Tell whether a cache file holds these images."""
    canvas = store_of(decoded).batch(torch.arange(len(images)))
    return all(
        torch.equal(pixels[:, : image.shape[1], : image.shape[2]], image)
        for pixels, image in zip(canvas.pixels, images, strict=True)
    )


def with_trailer(index: object) -> bytes:
    """Return an index as the end of a cache file holds it."""
    encoded = json.dumps(index).encode()
    return encoded + len(encoded).to_bytes(8, "little") + MAGIC


def test_what_is_written_is_read(tmp_path: Path) -> None:
    images = some_images()
    write_cache(tmp_path / "a.pixels", "mark", filled(iter([images[0], None, *images[1:], None])))
    decoded = read_cache(tmp_path / "a.pixels", "mark")
    assert decoded.is_mapped
    assert decoded.skipped == [1, 5]
    assert decoded.sizes.tolist() == [list(image.shape[1:]) for image in images]
    assert same(decoded, images)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pixels"]


def test_images_of_one_size_take_no_spare_row(tmp_path: Path) -> None:
    images = [torch.full((1, 3, 3), place, dtype=torch.uint8) for place in range(5)]
    write_cache(tmp_path / "a.pixels", "mark", filled(images, 1))
    decoded = read_cache(tmp_path / "a.pixels", "mark")
    assert torch.equal(decoded.flat.view(5, 1, 3, 3), torch.stack(images))


def test_no_image_at_all_is_an_empty_file(tmp_path: Path) -> None:
    write_cache(tmp_path / "a.pixels", "mark", filled([None, None]))
    decoded = read_cache(tmp_path / "a.pixels", "mark")
    assert (len(decoded.flat), len(decoded.sizes), decoded.skipped) == (0, 0, [0, 1])


def test_a_write_to_the_pixels_does_not_reach_the_file(tmp_path: Path) -> None:
    write_cache(tmp_path / "a.pixels", "mark", filled(some_images()))
    read_cache(tmp_path / "a.pixels", "mark").flat.zero_()
    assert same(read_cache(tmp_path / "a.pixels", "mark"), some_images())


def test_a_missing_and_another_mark_are_stale(tmp_path: Path) -> None:
    with pytest.raises(StaleCache, match="cannot be read"):
        read_cache(tmp_path / "a.pixels", "mark")
    write_cache(tmp_path / "a.pixels", "mark", filled(some_images()))
    with pytest.raises(StaleCache, match="other files or settings"):
        read_cache(tmp_path / "a.pixels", "another mark")


def test_the_end_of_a_file_is_what_these_tests_take_it_for(tmp_path: Path) -> None:
    index = {"version": VERSION, "num_bytes": 0, "fingerprint": "mark", "sizes": [], "skipped": [3]}
    (tmp_path / "a.pixels").write_bytes(with_trailer(index))
    assert read_cache(tmp_path / "a.pixels", "mark").skipped == [3]


@given(data=st.data())
def test_a_file_that_was_cut_anywhere_is_stale(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.pixels"
    write_cache(path, "mark", filled(some_images()))
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(StaleCache):
        read_cache(path, "mark")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a foreign file that is long enough",
        MAGIC,
        bytes(8) + MAGIC,
        b"\xff" * 8 + MAGIC,
        with_trailer([1, 2]),
        with_trailer({"version": VERSION + 1, "num_bytes": 0, "fingerprint": "mark", "sizes": [], "skipped": []}),
    ],
    ids=["empty", "foreign", "only its end", "no index", "endless index", "another index", "another version"],
)
def test_foreign_files_are_stale_and_written_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pixels"
    path.write_bytes(content)
    with pytest.raises(StaleCache):
        read_cache(path, "mark")
    notices: list[str] = []
    assert same(open_or_write(path, "mark", filled(some_images()), notices.append), some_images())
    assert len(notices) == 1
    assert str(path) in notices[0]
    assert notices[0].endswith("written anew")


def test_the_second_time_nothing_is_decoded(tmp_path: Path) -> None:
    path, notices = tmp_path / "deep" / "a.pixels", list[str]()
    open_or_write(path, "mark", filled(some_images()), notices.append)

    def nobody_asks() -> Iterator[torch.Tensor]:
        raise AssertionError

    assert same(
        open_or_write(path, "mark", lambda file: write_pixels(file, nobody_asks(), 3), notices.append), some_images()
    )
    assert notices == [f"images are kept in '{path}'"]


def test_a_whole_cache_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cache(tmp_path / "a.pixels", "mark", filled(some_images()))
    monkeypatch.setattr("clare.data.cache.holding", None)
    assert same(open_or_write(tmp_path / "a.pixels", "mark", filled(some_images()), print), some_images())


def test_of_two_writers_one_waits_and_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.pixels"
    begun, num_decoded, results = threading.Event(), 0, list[Contents]()

    def images() -> Iterator[torch.Tensor]:
        nonlocal num_decoded
        num_decoded += 1
        for image in some_images():
            begun.set()
            with pytest.raises(StaleCache):
                read_cache(path, "mark")
            yield image

    def work() -> None:
        results.append(open_or_write(path, "mark", lambda file: write_pixels(file, images(), 3), lambda text: None))

    workers = [threading.Thread(target=work) for _ in range(2)]
    workers[0].start()
    begun.wait(60)
    workers[1].start()
    for worker in workers:
        worker.join()
    assert num_decoded == 1
    assert len(results) == 2
    assert all(same(decoded, some_images()) for decoded in results)


def test_whoever_has_the_old_file_open_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "a.pixels"
    old = open_or_write(path, "mark", filled(some_images()), lambda text: None)
    new = open_or_write(path, "new mark", filled(some_images(2)), lambda text: None)
    assert same(old, some_images())
    assert same(new, some_images(2))


def test_an_error_while_decoding_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pixels"
    write_cache(path, "mark", filled(some_images()))

    def images() -> Iterator[torch.Tensor]:
        yield some_images()[0]
        raise DataError("a bad image")

    with pytest.raises(DataError, match="a bad image"):
        open_or_write(path, "new mark", lambda file: write_pixels(file, images(), 3), lambda text: None)
    assert same(read_cache(path, "mark"), some_images())
    assert not list(tmp_path.glob(".*.tmp"))


def test_what_a_killed_process_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".a.pixels.tmp").write_bytes(b"x" * 100_000)
    decoded = open_or_write(tmp_path / "a.pixels", "mark", filled(some_images()), lambda text: None)
    assert same(decoded, some_images())
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"could not write the image cache .*set `data.cache` to another folder"):
        open_or_write(tmp_path / "file" / "a.pixels", "mark", filled(some_images()), lambda text: None)


def test_the_fingerprint_depends_on_names_sizes_times_and_form(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    paths = [tmp_path / "ant" / name for name in ("0.png", "1.png")]
    for path in paths:
        path.write_bytes(b"1234")
        os.utime(path, ns=(5, 5))
    form = {"channels": 3, "store_size": 0}
    before = fingerprint(tmp_path, paths, form)
    assert before == fingerprint(tmp_path, paths, dict(reversed(form.items())))
    marks = {before, fingerprint(tmp_path, paths, {**form, "channels": 1}), fingerprint(tmp_path, paths[:1], form)}
    os.utime(paths[0], ns=(5, 6))
    marks.add(fingerprint(tmp_path, paths, form))
    paths[0].write_bytes(b"12345")
    os.utime(paths[0], ns=(5, 5))
    marks.add(fingerprint(tmp_path, paths, form))
    paths[0].write_bytes(b"1234")
    os.utime(paths[0], ns=(5, 5))
    assert fingerprint(tmp_path, paths, form) == before
    renamed = paths[0].rename(tmp_path / "ant" / "2.png")
    marks.add(fingerprint(tmp_path, [renamed, paths[1]], form))
    marks.add(fingerprint(tmp_path, paths, form))
    assert len(marks) == 7


def test_a_tree_that_was_moved_keeps_its_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "0.png").write_bytes(b"1")
    before = fingerprint(tmp_path / "old", [tmp_path / "old" / "0.png"], {})
    (tmp_path / "old").rename(tmp_path / "new")
    assert fingerprint(tmp_path / "new", [tmp_path / "new" / "0.png"], {}) == before


def test_the_folder_is_the_users_own_unless_one_is_asked_for() -> None:
    assert cache_folder("", {"XDG_CACHE_HOME": "/there"}) == Path("/there/clare")
    assert cache_folder("", {}) == Path.home() / ".cache" / "clare"
    assert cache_folder("~/mine", {"XDG_CACHE_HOME": "/there"}) == Path.home() / "mine"
