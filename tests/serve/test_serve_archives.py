"""Archives that mean well, and archives that do not."""

import contextlib
import errno
import io
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fake_service import bomb, png
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clare.errors import DataError
from clare.serve.archives import StoredImage, unpack
from clare.serve.limits import Limits, Refusal

GOOD = png(9)


def pack(files: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip of files by name."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, packing)
    return file.getvalue()


def opened(folder: Path, content: bytes, **limits: Any) -> list[StoredImage]:
    """Unpack an archive into an inner folder."""
    inner = folder / "inner"
    inner.mkdir(exist_ok=True)
    (folder / "archive").write_bytes(content)
    return unpack(folder / "archive", inner, Limits(**limits))


def refusal(folder: Path, content: bytes, **limits: Any) -> Refusal:
    """Return why an archive is refused, and make sure that nothing lies outside the inner folder."""
    with pytest.raises(Refusal) as caught:
        opened(folder, content, **limits)
    assert {path.name for path in folder.iterdir()} == {"inner", "archive"}
    return caught.value


@pytest.mark.parametrize("wrapper", ["", "pictures/"])
def test_class_folders_become_labelled_images(tmp_path: Path, wrapper: str) -> None:
    files = {"cat/1.png": GOOD, "cat/2.jpeg": png(5, kind="BMP"), "dög/1.png": png(1)}
    clutter = {"__MACOSX/cat/._1.png": b"x", "cat/.DS_Store": b"x", "dög/Thumbs.db": b"x", "empty/": b""}
    packed = pack({wrapper + name: content for name, content in (files | clutter).items()}, zipfile.ZIP_DEFLATED)
    images = opened(tmp_path, packed)
    assert [(image.label, image.name) for image in images] == [(name.split("/")[0], wrapper + name) for name in files]
    assert [image.path.read_bytes() for image in images] == list(files.values())
    assert {image.path.parent for image in images} == {tmp_path / "inner"}


def test_a_class_name_has_one_spelling(tmp_path: Path) -> None:
    images = opened(tmp_path, pack({"u\u0308/1.png": GOOD, "\u00fc/2.png": GOOD}))
    assert {image.label for image in images} == {"\u00fc"}
    with pytest.raises(DataError, match="class name"):
        opened(tmp_path, pack({" /1.png": GOOD}))


@pytest.mark.parametrize(
    "name",
    ["../1.png", "/etc/1.png", "cat/../../1.png", "cat/..", "..\\cat\\1.png", "C:/cat/1.png", "cat\\1.png", "a/\0/b"],
)
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    # Of one length, since a zip file written by Python would cut a name at its zero byte.
    packed = pack({"cat/1.png": GOOD, "x" * len(name): GOOD}).replace(b"x" * len(name), name.encode())
    refused = refusal(tmp_path, packed)
    assert refused.status == 422
    assert "outside" in str(refused)


def test_links_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        link = zipfile.ZipInfo("cat/1.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert "is a link" in str(refusal(tmp_path, file.getvalue()))


def test_encrypted_files_are_refused(tmp_path: Path) -> None:
    packed = bytearray(pack({"cat/1.png": GOOD}))
    packed[packed.rindex(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in str(refusal(tmp_path, bytes(packed)))


@pytest.mark.parametrize("name", ["cat/more.zip", "cat/1.png"])
def test_archives_within_archives_are_refused(tmp_path: Path, name: str) -> None:
    assert "itself an archive" in str(refusal(tmp_path, pack({name: pack({"cat/1.png": GOOD})})))


def test_an_archive_that_grows_too_much_is_refused(tmp_path: Path) -> None:
    packed = pack({"cat/1.png": bytes(3 << 20)}, zipfile.ZIP_DEFLATED)
    refused = refusal(tmp_path, packed)
    assert (refused.status, "100 times" in str(refused)) == (413, True)
    assert not list((tmp_path / "inner").iterdir())
    refused = refusal(tmp_path, packed, unpacked_bytes=1000)
    assert (refused.status, "1000 bytes" in str(refused)) == (413, True)
    refused = refusal(tmp_path, packed, unpacked_ratio=10_000, image_bytes=1 << 20)
    assert (refused.status, "'cat/1.png'" in str(refused)) == (413, True)


def test_many_small_files_count_together(tmp_path: Path) -> None:
    packed = pack({f"cat/{number}.png": GOOD for number in range(10)})
    assert len(opened(tmp_path, packed, unpacked_bytes=10 * len(GOOD))) == 10
    assert refusal(tmp_path, packed, unpacked_bytes=10 * len(GOOD) - 1).status == 413
    assert refusal(tmp_path, packed, learn_images=9).status == 413


def test_sizes_that_an_archive_states_are_not_believed(tmp_path: Path) -> None:
    packed = bytearray(pack({"cat/1.png": bytes(3 << 20)}, zipfile.ZIP_DEFLATED))
    # The uncompressed size in the central directory and in the file's own header.
    for start, offset in ((packed.rindex(b"PK\x01\x02"), 24), (packed.index(b"PK\x03\x04"), 22)):
        packed[start + offset : start + offset + 4] = struct.pack("<I", 10)
    refusal(tmp_path, bytes(packed))
    assert sum(path.stat().st_size for path in (tmp_path / "inner").iterdir()) <= 10


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no images"),
        ({"1.png": GOOD}, "'1.png' in the archive does not lie in a class folder"),
        ({"a/b/c/1.png": GOOD}, "class folder"),
        ({"train/cat/1.png": GOOD, "test/cat/1.png": GOOD}, "class folder"),
        ({"cat/1.png": GOOD, "cat/notes.png": b"text"}, "'cat/notes.png' is no image"),
        ({"cat/1.png": bomb(9_000)}, "9000 x 9000"),
    ],
)
def test_what_cannot_be_learnt_is_told(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    assert words in str(refusal(tmp_path, pack(files)))


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_grow_without_bounds_are_refused(tmp_path: Path, packing: int) -> None:
    refused = refusal(tmp_path, pack({"cat/1.png": GOOD}, packing))
    assert (refused.status, "deflate" in str(refused)) == (422, True)
    packed = pack({"cat/1.png": GOOD}, packing)
    start = packed.index(b"1.png") + len("1.png")
    assert refusal(tmp_path, packed[: start + 9] + bytes(16) + packed[start + 25 :]).status == 422


def test_files_at_impossible_places_are_refused(tmp_path: Path) -> None:
    packed = pack({"cat/1.png": GOOD})
    end = packed.rindex(b"PK\x05\x06")
    for shift in (1, 50_000, len(packed), 1 << 31):
        # Where the list of files begins, from which the places of all files are counted.
        moved = struct.pack("<I", struct.unpack_from("<I", packed, end + 16)[0] + shift)
        assert refusal(tmp_path, packed[: end + 16] + moved + packed[end + 20 :]).status == 422


def test_a_disk_that_is_full_is_no_fault_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    packed = pack({"cat/1.png": GOOD})
    (tmp_path / "archive").write_bytes(packed)
    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="no space left"):
        unpack(tmp_path / "archive", tmp_path, Limits())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_a_damaged_archive_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    packings = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    packed = bytearray(pack({"cat/1.png": GOOD, "dog/1.png": GOOD}, data.draw(st.sampled_from(packings))))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Refusal, DataError):
        opened(tmp_path, bytes(packed[: data.draw(st.integers(0, len(packed)))]))
    assert {path.name for path in tmp_path.iterdir()} == {"inner", "archive"}
