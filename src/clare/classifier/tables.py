"""Pictures and their classes in tables: CSV, Parquet, and data sets of Hugging Face on disk or on the Hub."""

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from clare.data.pictures import Stored
from clare.errors import DataError, nearest
from clare.hub import HubError, HubFile, download, list_files

SUFFIXES = (".csv", ".tsv", ".parquet")
IMAGES = ("image", "img", "picture", "path", "file", "filename", "file_name", "image_path", "filepath")
CLASSES = ("label", "labels", "class", "class_name", "category", "species", "target")
"""What columns with pictures, or paths to them, and with classes are called, the likeliest first."""
PARTS = ("split", "part", "subset")
ON_DISK, DIVIDED = "state.json", "dataset_dict.json"
"""Files by which a data set of Hugging Face on disk is known, one and one of several parts."""
CONVERTED = "refs/convert/parquet"
"""Branch on which the Hub keeps as Parquet what was given in other forms."""

Triple = tuple[str, str, Path | Stored]


@dataclass(frozen=True)
class Table:
    """Columns, what the numbers in some of them stand for, and where relative paths begin."""

    label: str
    names: Sequence[str]
    rows: Any
    """A list of dictionaries, or a table of Arrow."""
    meanings: dict[str, list[str]]
    folder: Path
    part: str = ""


def is_table(path: Path) -> bool:
    """Tell whether a path is a table."""
    is_on_disk = path.is_dir() and any((path / name).is_file() for name in (ON_DISK, DIVIDED))
    return is_on_disk or (path.suffix.lower() in SUFFIXES and path.is_file())


def from_table(path: Path, columns: str) -> Iterator[Triple]:
    """Yield the pictures of a table with part and class; `columns` names that of classes, or of pictures before it."""
    if (path / DIVIDED).is_file():
        for part in _json(path / DIVIDED).get("splits", []):
            yield from _triples(_saved(path / part, part), columns)
    elif path.is_dir():
        yield from _triples(_saved(path, ""), columns)
    else:
        is_text = path.suffix.lower() != ".parquet"
        yield from _triples(_text(path) if is_text else _parquet([path], "", str(path)), columns)


def from_hub(name: str, columns: str) -> Iterator[Triple]:
    """Yield the pictures of a data set on the Hub, whose Parquet files are fetched to the Hub's cache."""
    repository = "/".join(name.split("/")[:2])
    config, parts = name.removeprefix(repository).strip("/"), dict[str, list[Path]]()
    try:
        for revision in (None, CONVERTED):
            files = [file for file in list_files(repository, revision) if file.endswith(".parquet")]
            sets = sorted(
                {file.split("/")[0] for file in files if "/" in file} - {"data", "train", "test", "validation"}
            )
            if len(sets) > 1 and config not in sets:
                raise DataError(
                    f"hf:{name} holds several sets, {', '.join(sets)}; choose one: hf:{repository}/{sets[0]}"
                )
            for file in files:
                if file.startswith(f"{config}/" if config else ""):
                    path = download(HubFile(repository, file, kind="dataset"), revision=revision)
                    parts.setdefault(_part_in(file), []).append(path)
            if files:
                break
    except HubError as error:
        raise DataError(
            f"hf:{name} could not be fetched ({error}); check its name, or connect once: later the Hub's cache has it"
        ) from error
    if not parts:
        raise DataError(f"hf:{name} has no Parquet files, in which pictures could be read; download and unpack it")
    for part, found in sorted(parts.items()):
        yield from _triples(_parquet(found, part, f"hf:{name}"), columns)


def _part_in(file: str) -> str:
    """Return the part of a data set in a file of the Hub, `data/train-00000-of-00001.parquet` or `x/test/0.parquet`."""
    path = PurePosixPath(file)
    stem = path.stem.split("-")[0]
    return path.parent.name if stem.isdecimal() else stem


def said_label(path: PurePosixPath, content: bytes, archive: Path) -> str:
    """Return the class in a file that lies beside a picture."""
    try:
        text = content.decode().strip()
        if path.suffix.lower() == ".json":
            values = json.loads(text)
            text = str(next(values[name] for name in (*CLASSES, "cls") if name in values))
    except (ValueError, TypeError, StopIteration):
        text = ""
    if not text or "\n" in text:
        raise DataError(f"'{path}' in {archive} names no class; write its name into it, in JSON as 'label'")
    return text


def _arrow() -> Any:
    """Return the package that reads Parquet and Arrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataError(
            "Parquet and data sets of Hugging Face need a package that is missing: pip install 'clare[tables]'"
        ) from None
    return pyarrow


@contextmanager
def _in_one_sentence(label: str | Path, what: str, remedy: str) -> Iterator[None]:
    """Say in a sentence what fails in a file; readers fail on damaged ones with almost every kind of exception."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{label} cannot be read as {what} ({reason}); {remedy}") from None


def _json(path: Path) -> dict[str, Any]:
    """Read a file that describes a data set."""
    with _in_one_sentence(path, "the description of a data set", "save it again"):
        return dict(json.loads(path.read_text()))


def _text(path: Path) -> Table:
    """Read a table of text."""
    with (
        _in_one_sentence(path, "a table", "save it as CSV in UTF-8"),
        path.open(newline="", encoding="utf-8-sig") as file,
    ):
        sample = file.readline()
        file.seek(0)
        reader = csv.DictReader(file, delimiter=max(",;\t", key=sample.count))
        rows = list(reader)
    return Table(str(path), [name for name in reader.fieldnames or () if name], rows, {}, path.parent)


def _parquet(paths: Sequence[Path], part: str, label: str) -> Table:
    """Read Parquet files of one part."""
    arrow = _arrow()
    with _in_one_sentence(label, "Parquet", "save it again"):
        table = arrow.concat_tables([arrow.parquet.read_table(path, partitioning=None) for path in paths])
        said = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        meanings = _meanings(said.get("info", {}).get("features", {}))
    return Table(label, table.column_names, table, meanings, paths[0].parent, part)


def _saved(folder: Path, part: str) -> Table:
    """Read one part of a data set of Hugging Face that was saved on disk."""
    arrow, state = _arrow(), _json(folder / ON_DISK)
    if state.get("_indices_data_files"):
        raise DataError(f"{folder} holds a selection of rows; save it after flatten_indices()")
    with _in_one_sentence(folder, "a data set", "save it again"):
        files = [arrow.memory_map(str(folder / file["filename"])) for file in state["_data_files"]]
        table = arrow.concat_tables([arrow.ipc.open_stream(file).read_all() for file in files])
        meanings = _meanings(_json(folder / "dataset_info.json").get("features", {}))
    return Table(str(folder), table.column_names, table, meanings, folder, part)


def _meanings(features: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of classes that stand as numbers in some columns."""
    return {name: list(feature["names"]) for name, feature in features.items() if "names" in feature}


def _triples(table: Table, columns: str) -> Iterator[Triple]:
    """Yield the pictures of a table with part and class."""
    asked = [name.strip() for name in columns.split(",") if name.strip()]
    image = _column(table, IMAGES, asked[-2] if len(asked) > 1 else None, "pictures")
    label = _column(table, [*table.meanings, *CLASSES], asked[-1] if asked else None, "classes")
    part = next((name for name in PARTS if name in table.names), None)
    # Pictures stay in the table: of them only what is asked for is ever copied.
    is_text = isinstance(table.rows, list)
    others = [name for name in (label, part) if name is not None]
    rows = table.rows if is_text else table.rows.select(others).to_pylist()
    holds_paths = is_text or str(table.rows.schema.field(image).type) in ("string", "large_string")
    meanings = table.meanings.get(label)
    for place, row in enumerate(rows):
        value, where = row[label], f"row {place + 1} of {table.label}"
        if value is None or value == "":
            raise DataError(f"{where} has no '{label}'; fill it in or remove the row")
        if meanings is not None and not 0 <= int(value) < len(meanings):
            raise DataError(f"{where} has {value} as '{label}', which names none of the classes")
        picture: Path | Stored = Stored(where, partial(_content, table, image, place))
        if holds_paths:
            path = row[image] if is_text else table.rows[image][place].as_py()
            if not path:
                raise DataError(f"{where} names no picture; fill it in or remove the row")
            picture = table.folder / path
        yield str(row[part]) if part else table.part, str(value) if meanings is None else meanings[int(value)], picture


def _content(table: Table, column: str, row: int) -> bytes:
    """Return the bytes of a picture in a table, or of the file that is named there."""
    value: Any = table.rows[column][row].as_py()
    content: object = value.get("bytes") if isinstance(value, dict) else value
    if content is None and isinstance(value, dict) and value.get("path"):
        return (table.folder / str(value["path"])).read_bytes()
    if not isinstance(content, bytes):
        raise DataError(f"row {row + 1} of {table.label} has no picture in '{column}'; name another column")
    return content


def _column(table: Table, likely: Sequence[str], asked: str | None, what: str) -> str:
    """Return the column that was asked for, or the likeliest."""
    if asked is not None:
        if asked not in table.names:
            raise DataError(
                f"{table.label} has no column '{asked}'{nearest(asked, table.names)}; it has {_shown(table.names)}"
            )
        return asked
    lower = {name.lower(): name for name in reversed(table.names)}
    found = next((lower[name.lower()] for name in likely if name.lower() in lower), None)
    if found is None:
        raise DataError(
            f"{table.label} has the columns {_shown(table.names)}, and none is known to hold {what}; name them behind "
            f"it: {table.label}@IMAGE,LABEL"
        )
    return found


def _shown(names: Sequence[str]) -> str:
    """Name the first columns."""
    return ", ".join(names[:20]) or "none"
