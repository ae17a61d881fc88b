"""Pictures and their classes in tables: CSV, Parquet, and data sets of Hugging Face on disk or on the Hub."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
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


def from_table(path: Path, columns: str) -> Iterable[Triple]:
    """Return the pictures of a table with part and class; `columns` names that of classes, or of pictures before it."""
    if (path / DIVIDED).is_file():
        parts = _json(path / DIVIDED).get("splits", [])
        return [triple for part in parts for triple in _triples(_saved(path / part, part), columns)]
    if path.is_dir():
        return _triples(_saved(path, ""), columns)
    return _triples(_parquet([path], "", str(path)) if path.suffix.lower() == ".parquet" else _text(path), columns)


def from_hub(name: str, columns: str) -> Iterable[Triple]:
    """Return the pictures of a data set on the Hub, whose Parquet files are fetched to the Hub's cache."""
    repository = "/".join(name.split("/")[:2])
    config = name.removeprefix(repository).strip("/")
    try:
        revision = None
        files = [file for file in list_files(repository, revision) if file.endswith(".parquet")]
        if not files:
            revision = CONVERTED
            files = [file for file in list_files(repository, revision) if file.endswith(".parquet")]
        folders = sorted({str(PurePosixPath(file).parts[0]) for file in files if "/" in file} - {"data"})
        if len(folders) > 1 and config not in folders:
            raise DataError(
                f"hf:{name} holds several sets; choose one, such as hf:{repository}/{folders[0]}: {', '.join(folders)}"
            )
        chosen = [file for file in files if not config or file.startswith(f"{config}/")]
        paths = [(file, download(HubFile(repository, file, is_dataset=True), revision=revision)) for file in chosen]
    except HubError as error:
        raise DataError(
            f"hf:{name} could not be fetched ({error}); check its name, or connect once: later the Hub's cache has it"
        ) from error
    if not paths:
        raise DataError(f"hf:{name} has no Parquet files, in which pictures could be read; download and unpack it")
    parts: dict[str, list[Path]] = {}
    for file, path in paths:
        parts.setdefault(_part_in(file), []).append(path)
    return [
        triple
        for part, found in sorted(parts.items())
        for triple in _triples(_parquet(found, part, f"hf:{name}"), columns)
    ]


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


def _json(path: Path) -> dict[str, Any]:
    """Read a file that describes a data set."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); save the data set again") from None
    if not isinstance(values, dict):
        raise DataError(f"{path} does not describe a data set; save it again")
    return values


def _text(path: Path) -> Table:
    """Read a table of text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            sample = file.readline()
            file.seek(0)
            marks = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=sample.count)
            reader = csv.DictReader(file, delimiter=marks)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a table ({error}); save it as CSV in UTF-8") from None
    return Table(str(path), [name for name in reader.fieldnames or () if name], rows, {}, path.parent)


def _parquet(paths: Sequence[Path], part: str, label: str) -> Table:
    """Read Parquet files of one part."""
    arrow = _arrow()
    try:
        tables = [arrow.parquet.read_table(path, partitioning=None) for path in paths]
        table = arrow.concat_tables(tables)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{label} cannot be read as Parquet ({str(error).splitlines()[0]}); save it again") from None
    said = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    features = said.get("info", {}).get("features", {})
    return Table(label, table.column_names, table, _meanings(features), paths[0].parent, part)


def _saved(folder: Path, part: str) -> Table:
    """Read one part of a data set of Hugging Face that was saved on disk."""
    arrow, state = _arrow(), _json(folder / ON_DISK)
    if state.get("_indices_data_files"):
        raise DataError(f"{folder} holds a selection of rows; save it after flatten_indices()")
    try:
        found = []
        for file in state["_data_files"]:
            with arrow.memory_map(str(folder / file["filename"])) as opened:
                found.append(arrow.ipc.open_stream(opened).read_all())
        table = arrow.concat_tables(found)
    except (arrow.ArrowException, OSError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder} cannot be read as a data set ({str(error).splitlines()[0]}); save it again"
        ) from None
    features = _json(folder / "dataset_info.json").get("features", {})
    return Table(str(folder), table.column_names, table, _meanings(features), folder, part)


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
    others = [name for name in (label, part) if name is not None]
    rows = table.rows if isinstance(table.rows, list) else table.rows.select(others).to_pylist()
    for number, row in enumerate(rows, 1):
        value = row[label]
        if value is None or value == "":
            raise DataError(f"row {number} of {table.label} has no '{label}'; fill it in or remove the row")
        meanings = table.meanings.get(label)
        if meanings is not None and not 0 <= int(value) < len(meanings):
            raise DataError(f"row {number} of {table.label} has {value} as '{label}', which names none of the classes")
        name = str(value) if meanings is None else meanings[int(value)]
        yield str(row[part]) if part else table.part, name, _picture(table, image, number - 1)


def _picture(table: Table, column: str, row: int) -> Path | Stored:
    """Return a picture: a path in text, or bytes in the table."""
    if isinstance(table.rows, list):
        return _path(table, table.rows[row][column], row)
    kind = table.rows.schema.field(column).type
    if str(kind) in ("string", "large_string"):
        return _path(table, table.rows[column][row].as_py(), row)
    return Stored(f"row {row + 1} of {table.label}", partial(_content, table, column, row))


def _path(table: Table, value: str | None, row: int) -> Path:
    """Return the path in a cell, which begins where the table is."""
    if not value:
        raise DataError(f"row {row + 1} of {table.label} names no picture; fill it in or remove the row")
    return table.folder / value


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
    return ", ".join(islice(names, 20)) or "none"
