"""Pictures and their classes where people keep them: folders, tables, tars, zips, and data sets of Hugging Face."""

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from clare.classifier import tables
from clare.data.folders import image_paths, subfolders
from clare.data.images import IMAGE_SUFFIXES
from clare.data.pictures import Stored
from clare.errors import DataError

ByClass = dict[str, list[Path | Stored]]
"""Pictures by the names of their classes, none of them read yet."""
Triple = tuple[str, str, Path | Stored]
"""The part of a picture, its class, and itself."""

PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""What the parts of a data set are called, and what they are."""
LABELS = (".cls", ".label", ".txt", ".json")
"""How the files of a WebDataset end that say what a picture shows."""
ARCHIVES = (".tar", ".tgz", ".zip")


@dataclass(frozen=True)
class Source:
    """Pictures by part: `train` or, where nobody divided them, `""`; beside `train` `val`, `test` or both."""

    label: str
    parts: dict[str, ByClass]

    @property
    def to_learn(self) -> ByClass:
        """Pictures to learn from, a share of which may have to be held back."""
        return self.parts["train" if "train" in self.parts else ""]

    @property
    def held_back(self) -> ByClass | None:
        """Pictures to hold back where there is a part for that."""
        return self.parts.get("val", self.parts.get("test"))

    @property
    def to_measure(self) -> ByClass:
        """Pictures to measure on: the last part that there is."""
        return self.parts.get("test", self.held_back or self.to_learn)


def find_source(given: str | Path) -> Source:
    """Find the pictures that a path or `hf:NAME` stands for; `@IMAGE,LABEL` behind it names the columns of a table."""
    text, columns = str(given), ""
    if "@" in text and not Path(text).exists():
        text, _, columns = text.rpartition("@")
    path = Path(text).expanduser()
    if text.startswith("hf:"):
        triples: Iterable[Triple] = tables.from_hub(text.removeprefix("hf:"), columns)
    elif tables.is_table(path):
        triples = tables.from_table(path, columns)
    elif columns:
        raise DataError(f"'{given}' names columns of {path}, which is no table; leave out '@{columns}'")
    elif path.is_file() and _is_archive(path):
        triples = _in_archives([path])
    elif path.is_dir():
        shards = sorted(file for file in path.iterdir() if file.suffix.lower() in ARCHIVES)
        triples = _in_archives(shards) if shards and not subfolders(path) else _in_folder(path)
    elif path.is_file():
        raise DataError(
            f"{path} is a file that holds no pictures with classes; give a folder with one folder per class, a table "
            f"({', '.join(tables.SUFFIXES)}), a tar or a zip"
        )
    else:
        raise DataError(f"there is no folder or file {path}; give a folder that has one folder per class")
    parts: dict[str, ByClass] = {}
    for part, name, picture in triples:
        parts.setdefault(part_of(part), {}).setdefault(name, []).append(picture)
    return Source(str(given), _checked(parts, str(given)))


def part_of(name: str) -> str:
    """Return the part of a data set that a name means, if it means one."""
    return PARTS.get(name.lower(), "")


def holds_many(given: str | Path) -> bool:
    """Tell whether a path stands for many pictures although it is no folder of them."""
    text = str(given)
    path = Path(text if Path(text).exists() else text.rpartition("@")[0] or text)
    return text.startswith("hf:") or tables.is_table(path) or (path.is_file() and _is_archive(path))


def _is_archive(path: Path) -> bool:
    """Tell whether a file is called like an archive."""
    return path.name.lower().removesuffix(".gz").endswith(ARCHIVES)


def _checked(parts: dict[str, ByClass], label: str) -> dict[str, ByClass]:
    """Refuse classes that are measured and not taught; what has no part to learn from is one part."""
    if not parts:
        raise DataError(f"{label} has no pictures with classes; give one that has")
    if "train" not in parts or len(parts) == 1:
        whole: ByClass = {}
        for found in parts.values():
            for name, images in found.items():
                whole.setdefault(name, []).extend(images)
        return {"": whole}
    for part, found in parts.items():
        strange = sorted(found.keys() - parts["train"].keys())
        if strange:
            raise DataError(
                f"'{label}/{part}' has the class '{strange[0]}', which '{label}/train' has not; give both the same"
            )
    return parts


def _in_folder(folder: Path) -> Iterable[Triple]:
    """Return the pictures of class folders, or of folders for the parts of a data set with such folders in them."""
    names = subfolders(folder)
    if _are_parts(names):
        return [(part, *pair) for part in names for pair in _by_class(folder / part)]
    return [("", *pair) for pair in _by_class(folder)]


def _are_parts(names: Sequence[str]) -> bool:
    """Tell whether folders are the parts of a data set and not classes."""
    found = [part_of(name) for name in names]
    return all(found) and "train" in found and len(found) > 1


def _by_class(folder: Path) -> Iterable[tuple[str, Path]]:
    """Return the pictures of class folders; classes one folder deeper are pointed at."""
    names = subfolders(folder)
    if not names:
        raise DataError(f"{folder} has no class folders; put the images of each class into a folder of its own")
    for name in names:
        inside = subfolders(folder / name)
        if inside and not any(path.suffix.lower() in IMAGE_SUFFIXES for path in (folder / name).iterdir()):
            some = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
            raise DataError(
                f"'{folder / name}' has no images but folders ({some}); if these are the classes, give that folder: "
                f"clare learn MODEL {folder / name}"
            )
        yield from ((name, path) for path in image_paths(folder / name))


def _in_archives(archives: Sequence[Path]) -> list[Triple]:
    """Return the pictures of zips of class folders, and of tars of those or in the manner of WebDataset."""
    found: list[Triple] = []
    for archive in archives:
        try:
            members = _zipped(archive) if archive.suffix.lower() == ".zip" else _tarred(archive)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise DataError(f"{archive} cannot be read to its end as an archive ({reason}); fetch it again") from None
        part = part_of(archive.name.split("-")[0].split(".")[0])
        found += [(part or own, name, picture) for own, name, picture in _labelled(members, archive)]
    return found


def _labelled(members: dict[PurePosixPath, Callable[[], bytes]], archive: Path) -> Iterable[Triple]:
    """Return the pictures of an archive with their classes: a file of the same name says it, or the folder."""
    pictures = [path for path in members if path.suffix.lower() in IMAGE_SUFFIXES]
    said = {_key(path): path for path in members if path.suffix.lower() in LABELS}
    if not pictures:
        raise DataError(f"{archive} has no images ({', '.join(sorted(IMAGE_SUFFIXES))}); give an archive that has")
    if all(_key(path) in said for path in pictures):
        for path in pictures:
            label = tables.said_label(said[_key(path)], members[said[_key(path)]](), archive)
            yield "", label, Stored(f"{archive}/{path}", members[path])
        return
    folders = [path.parts[:-1] for path in pictures]
    while all(len(parts) > 1 for parts in folders) and len({parts[0] for parts in folders}) == 1:
        folders = [parts[1:] for parts in folders]
    has_parts = all(len(parts) == 2 for parts in folders) and _are_parts(sorted({parts[0] for parts in folders}))
    for path, parts in zip(pictures, folders, strict=True):
        if len(parts) != 1 + has_parts:
            raise DataError(
                f"'{path}' in {archive} has neither a label beside it ({', '.join(LABELS)}) nor lies in a class "
                "folder; pack CLASS/IMAGE, or NAME.jpg with NAME.cls"
            )
        yield parts[0] if has_parts else "", parts[-1], Stored(f"{archive}/{path}", members[path])


def _key(path: PurePosixPath) -> PurePosixPath:
    """Return what the files of one sample have in common: the path to the first point of the name."""
    return path.with_name(path.name.partition(".")[0] or path.name)


def _is_hidden(path: PurePosixPath) -> bool:
    """Tell whether a member is what operating systems add."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def _zipped(archive: Path) -> dict[PurePosixPath, Callable[[], bytes]]:
    """Return the members of a zip, and how each is read."""
    with zipfile.ZipFile(archive) as opened:
        names = [member.filename for member in opened.infolist() if not member.is_dir()]
    found = {PurePosixPath(name): partial(_from_zip, archive, name) for name in sorted(names)}
    return {path: read for path, read in found.items() if not _is_hidden(path)}


def _from_zip(archive: Path, name: str) -> bytes:
    """Read one member of a zip."""
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"'{name}' in {archive} cannot be read ({error}); pack it again") from None


def _tarred(archive: Path) -> dict[PurePosixPath, Callable[[], bytes]]:
    """Return the members of a tar to its end, and how each is read; those of a compressed one are kept in memory."""
    found: dict[PurePosixPath, Callable[[], bytes]] = {}
    size = archive.stat().st_size
    try:
        tarfile.open(archive, "r:").close()
        is_plain = True
    except tarfile.ReadError:
        is_plain = False
    with tarfile.open(archive) as opened:
        for member in opened:
            path = PurePosixPath(member.name)
            if not member.isfile() or _is_hidden(path):
                continue
            if is_plain:
                found[path] = partial(_slice, archive, member.offset_data, member.size)
            else:
                content = opened.extractfile(member)
                found[path] = partial(bytes, content.read() if content is not None else b"")
        # Behind the last file there is a mark; where a download broke off between two files it is missing.
        if is_plain and opened.offset >= size:
            raise EOFError("it was cut off")
    return found


def _slice(path: Path, start: int, size: int) -> bytes:
    """Read some bytes of a file."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)
