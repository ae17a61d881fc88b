"""Archives of images: unpacked safely, and searched for the tree in them."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from clare.data.folders import subfolders

Progress = Callable[[str, int, int], None]
"""Is told what is being done, and how many bytes of how many are."""


class BadArchive(Exception):
    """An archive that cannot be used, with the reason as a clause."""


def unpack(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a zip or tar file to a new folder; nothing in it can be written elsewhere."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, folder, progress)
        elif tarfile.is_tarfile(archive):
            _untar(archive, folder, progress)
        else:
            raise BadArchive("it is neither a zip nor a tar file")
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadArchive(f"it is damaged: {error}") from error


def _unzip(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a zip file, which keeps all of its members below the folder."""
    with zipfile.ZipFile(archive) as file:
        members = file.infolist()
        done, total = 0, sum(member.compress_size for member in members)
        for member in members:
            file.extract(member, folder)
            done += member.compress_size
            progress(f"unpacking {archive.name}", done, total)


def _untar(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a tar file of any compression, refusing members outside the folder."""
    total = archive.stat().st_size
    with archive.open("rb") as raw, tarfile.open(fileobj=raw) as file:
        for member in file:
            file.extract(member, folder, filter="data")
            progress(f"unpacking {archive.name}", raw.tell(), total)


def find_tree(folder: Path) -> Path:
    """Return the outermost folder that has a train and a test folder."""
    level = [folder]
    while level:
        for candidate in level:
            if {"train", "test"} <= set(subfolders(candidate)):
                return candidate
        # A class has no folders in it, so the search ends soon; several folders side by side are searched in order.
        level = [parent / name for parent in level for name in subfolders(parent)]
    raise BadArchive("it has no folder with train and test in it")
