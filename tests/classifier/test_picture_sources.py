"""Pictures are taught from where people keep them, each kind as a real file, and broken ones get one sentence."""

import csv
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from huggingface_hub import constants
from local_server import serve_files
from own_worlds import drawings, write_pictures
from PIL import Image
from pyarrow import parquet

from clare.classifier.inputs import pictures
from clare.classifier.pictures import Reader
from clare.classifier.sources import find_source
from clare.errors import DataError

SAVED = Path(__file__).parent / "saved_dataset"
"""Four drawings as `datasets` 5.2.0 saved them, in parts train and test."""


def png(image: Any) -> bytes:
    """Return a picture as the bytes of a file."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def rows(*classes: str, number: int = 3) -> list[tuple[str, bytes]]:
    """Return classes and files of drawings."""
    return [(name, png(image)) for name, images in drawings(*classes, number=number).items() for image in images]


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    """Write a zip file."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    """Write a tar file, compressed where it is called so."""
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_csv(path: Path, heading: list[str], lines: list[list[str]], mark: str = ",") -> Path:
    """Write a table of text."""
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=mark).writerows([heading, *lines])
    return path


def write_parquet(path: Path, columns: dict[str, list[Any]], names: list[str] | None = None) -> Path:
    """Write a Parquet file, with the names of its classes as `datasets` writes them."""
    table = pyarrow.table(columns)
    if names is not None:
        features = {"label": {"names": names, "_type": "ClassLabel"}, "image": {"_type": "Image"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)
    return path


def folder(path: Path) -> Path:
    return write_pictures(path / "pictures", "cat", "dog", number=3)


def table(path: Path, mark: str = ",", image: str = "path", label: str = "label", suffix: str = ".csv") -> Path:
    files = sorted(folder(path).glob("*/*.png"))
    lines = [[str(file.relative_to(path)), file.parent.name] for file in files]
    return write_csv(path / f"table{suffix}", [image, label], lines, mark)


def parquet_of_bytes(path: Path) -> Path:
    content = [{"bytes": data, "path": None} for _, data in rows("cat", "dog")]
    return write_parquet(path / "a.parquet", {"image": content, "label": [0] * 3 + [1] * 3}, ["cat", "dog"])


def parquet_of_paths(path: Path) -> Path:
    files = sorted(folder(path).glob("*/*.png"))
    columns = {"file": [str(file.relative_to(path)) for file in files], "class": [file.parent.name for file in files]}
    return write_parquet(path / "a.parquet", columns)


def numbered(ending: str, says: Callable[[str], bytes]) -> dict[str, bytes]:
    """Return the members of a WebDataset."""
    found = {}
    for number, (name, content) in enumerate(rows("cat", "dog")):
        found |= {f"{number:04d}.png": content, f"{number:04d}.{ending}": says(name)}
    return found


def in_folders(*before: str) -> dict[str, bytes]:
    """Return the members of an archive of class folders."""
    return {"/".join((*before, name, f"{n}.png")): content for n, (name, content) in enumerate(rows("cat", "dog"))}


PLACES: dict[str, Callable[[Path], Path | str]] = {
    "folder": folder,
    "csv": table,
    "csv with semicolons": lambda path: table(path, ";"),
    "tsv": lambda path: table(path, "\t", suffix=".tsv"),
    "csv with named columns": lambda path: f"{table(path, image='wo', label='was')}@wo,was",
    "csv with a named label": lambda path: f"{table(path, label='was')}@was",
    "parquet of bytes": parquet_of_bytes,
    "parquet of paths": parquet_of_paths,
    "tar": lambda path: write_tar(path / "a.tar", numbered("cls", str.encode)),
    "tar of json": lambda path: write_tar(
        path / "a.tar", numbered("json", lambda n: json.dumps({"label": n}).encode())
    ),
    "compressed tar": lambda path: write_tar(path / "a.tar.gz", numbered("txt", str.encode)),
    "tar of folders": lambda path: write_tar(path / "a.tar", in_folders()),
    "zip": lambda path: write_zip(path / "a.zip", {**in_folders("mine"), "__MACOSX/cat/._0.png": b"x"}),
    "shards": lambda path: (
        (
            write_tar(path / "s-0.tar", {k: v for k, v in in_folders().items() if k < "dog"}),
            write_tar(path / "s-1.tar", {k: v for k, v in in_folders().items() if k >= "dog"}),
        )[0].parent
    ),
}


@pytest.mark.parametrize("kind", PLACES)
def test_the_same_pictures_come_from_everywhere(tmp_path: Path, kind: str) -> None:
    given = PLACES[kind](tmp_path)
    found = Reader(1, 28, 0).by_class(given)
    expected = {name: [image[None] for image in images] for name, images in drawings("cat", "dog", number=3).items()}
    assert list(found) == ["cat", "dog"]
    for name, images in expected.items():
        assert all(np.array_equal(*pair) for pair in zip(found[name], images, strict=True))
    if kind != "shards":
        assert len(list(pictures(given))) == 6


def test_parts_of_a_data_set_are_learnt_from_held_back_and_measured(tmp_path: Path) -> None:
    for part, number in (("train", 4), ("valid", 2), ("test", 3)):
        write_pictures(tmp_path / "split" / part, "cat", "dog", number=number, seed=number)
    packed = {str(f.relative_to(tmp_path)): f.read_bytes() for f in sorted((tmp_path / "split").rglob("*.png"))}
    lines = [[name, name.split("/")[2], name.split("/")[1]] for name in packed]
    write_csv(tmp_path / "split.csv", ["path", "label", "split"], lines)
    for given in (tmp_path / "split", write_zip(tmp_path / "split.zip", packed), tmp_path / "split.csv"):
        taught = Reader(1, 28, 0).to_teach(given)
        assert (taught.num_train, taught.num_held_back) == (8, 4)
        assert sum(map(len, Reader(1, 28, 0).by_class(given).values())) == 6
    for part in ("train", "test"):
        (tmp_path / "shards").mkdir(exist_ok=True)
        write_tar(tmp_path / "shards" / f"{part}-000.tar", numbered("cls", str.encode))
    assert set(find_source(tmp_path / "shards").parts) == {"train", "test"}


def test_a_data_set_that_was_saved_on_disk_is_read() -> None:
    source = find_source(SAVED)
    assert {part: {name: len(images) for name, images in found.items()} for part, found in source.parts.items()} == {
        "train": {"cat": 1, "dog": 1},
        "test": {"cat": 1, "dog": 1},
    }
    found = Reader(1, 28, 0).by_class(SAVED / "train")
    expected = drawings("cat", "dog", number=2)
    assert [np.array_equal(found[name][0][0], expected[name][0]) for name in found] == [True, True]


def test_a_data_set_of_the_hub_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    content = [{"bytes": data, "path": None} for _, data in rows("cat", "dog")]
    columns = {"image": content, "label": [0] * 3 + [1] * 3}
    with serve_files() as server:
        for name in ("ENDPOINT", "HUGGINGFACE_CO_URL_HOME"):
            if hasattr(constants, name):
                monkeypatch.setattr(constants, name, server.address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        listed = []
        for part, number in (("train", 6), ("test", 4)):
            name = f"data/{part}-00000-of-00001.parquet"
            some = {key: values[-number:] for key, values in columns.items()}
            file = write_parquet(tmp_path / name, some, ["cat", "dog"])
            server.files[f"/datasets/someone/pets/resolve/main/{name}"] = file.read_bytes()
            listed.append({"type": "file", "path": name, "size": file.stat().st_size, "oid": "0" * 40})
        server.files["/"] = b""
        server.files["/api/datasets/someone/pets/tree/main?recursive=true&expand=false"] = json.dumps(listed).encode()
        source = find_source("hf:someone/pets")
        assert {part: sum(map(len, found.values())) for part, found in source.parts.items()} == {"test": 4, "train": 6}
        assert Reader(1, 28, 0).to_teach(source).classes == ("cat", "dog")
        num_gets = sum(request.startswith("GET /datasets") for request in server.requests)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert set(find_source("hf:someone/pets").parts) == {"train", "test"}
    assert num_gets == 2
    with pytest.raises(
        DataError, match=r"hf:someone/cows could not be fetched \(.*\); check its name, or connect once"
    ):
        find_source("hf:someone/cows")


def half(path: Path) -> Path:
    """Cut a file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def cut_between_files(path: Path) -> Path:
    """Cut a tar off where its last file begins."""
    with tarfile.open(path) as opened:
        place = opened.getmembers()[-1].offset
    path.write_bytes(path.read_bytes()[:place])
    return path


def deeper(path: Path) -> Path:
    write_pictures(path / "year" / "january", "cat", "dog", number=1)
    return path / "year"


BROKEN: dict[str, tuple[Callable[[Path], Path | str], str]] = {
    "nothing": (lambda path: path / "none", "there is no folder or file .*none; give a folder"),
    "text": (lambda path: (path / "a.txt", (path / "a.txt").write_text("x"))[0], "is a file that holds no pictures"),
    "deeper": (deeper, r"january' has no images but folders \(cat, dog\); .*: clare learn MODEL .*january$"),
    "no such label": (lambda path: f"{table(path)}@kind", "has no column 'kind'; it has path, label"),
    "near label": (lambda path: f"{table(path)}@lable", r"has no column 'lable' \(did you mean 'label'\?\)"),
    "no label": (
        lambda path: table(path, label="x"),
        "the columns path, x, and none is known to hold classes; name them",
    ),
    "no image": (lambda path: table(path, image="x"), "none is known to hold pictures; .*table.csv@IMAGE,LABEL"),
    "empty label": (
        lambda path: write_csv(path / "a.csv", ["path", "label"], [["a.png", ""]]),
        "row 1 of .* no 'label'",
    ),
    "empty path": (lambda path: write_csv(path / "a.csv", ["path", "label"], [["", "a"]]), "row 1 of .* names no pict"),
    "no rows": (lambda path: write_csv(path / "a.csv", ["path", "label"], []), "has no pictures with classes"),
    "no text": (lambda path: (path / "a.csv", (path / "a.csv").write_bytes(b"\xff\xfe\x00"))[0], "as CSV in UTF-8"),
    "columns of a folder": (lambda path: f"{folder(path)}@label", "is no table; leave out '@label'"),
    "half a tar": (
        lambda path: half(write_tar(path / "a.tar", in_folders())),
        "cannot be read to its end as an archive",
    ),
    "tar cut between files": (
        lambda path: cut_between_files(write_tar(path / "a.tar", in_folders())),
        "cannot be read to its end as an archive .it was cut off.; fetch it again",
    ),
    "half a tgz": (lambda path: half(write_tar(path / "a.tar.gz", in_folders())), "cannot be read to its end"),
    "half a zip": (lambda path: half(write_zip(path / "a.zip", in_folders())), "cannot be read to its end"),
    "half a table": (lambda path: half(parquet_of_bytes(path)), "cannot be read as Parquet"),
    "flat zip": (lambda path: write_zip(path / "a.zip", {"a.png": b"", "b.png": b""}), "neither a label beside it"),
    "empty zip": (lambda path: write_zip(path / "a.zip", {"a.doc": b""}), "has no images"),
    "said badly": (
        lambda path: write_tar(path / "a.tar", {"a.png": b"", "a.json": b"{}"}),
        "a.json' in .* names no class",
    ),
    "wrong number": (
        lambda path: write_parquet(path / "a.parquet", {"image": [b"x"], "label": [7]}, ["cat"]),
        "row 1 of .* has 7 as 'label', which names none",
    ),
    "no set": (lambda path: (path / "state.json", (path / "state.json").write_text("{}"))[0].parent, "save it again"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_read_gets_one_sentence(tmp_path: Path, kind: str) -> None:
    make, words = BROKEN[kind]
    with pytest.raises(DataError, match=words) as caught:
        find_source(make(tmp_path))
    assert "\n" not in str(caught.value)


def test_text_called_a_picture_is_named_with_its_archive(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"cat/a.jpg": b"hello", "dog/b.jpg": b"hello"})
    with pytest.raises(DataError, match=r"'.*a\.zip/cat/a\.jpg' cannot be read as an image"):
        Reader(1, 28, 0).to_teach(path)


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet_of_bytes(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'clare\[tables\]'"):
        find_source(path)
