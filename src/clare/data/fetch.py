"""Bring a data set here: from its publisher, from the Hub, or from an archive that the user has downloaded.

Everything happens in a hidden folder beside the target and is renamed when whole, so that what was cut short never
passes for a data set.
"""

import errno
import gzip
import hashlib
import http.client
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clare.data import cifar
from clare.data.catalogue import Archive, Facts
from clare.data.folders import list_tree, subfolders
from clare.data.inventory import folder_of, layout_of
from clare.data.settings import DRAWINGS, DataSettings
from clare.disk import check_space, free_space
from clare.errors import DataError
from clare.hub import HubError, download, file_size
from clare.locks import holding

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


@dataclass(frozen=True)
class Fetcher:
    """Fetches data sets; who knows better than the defaults where they are and how much room there is can say so."""

    progress: Progress = lambda what, done, total: None
    free_bytes: Callable[[Path], int] = free_space
    endpoint: str | None = None

    def fetch(self, settings: DataSettings, facts: Facts) -> Path:
        """Bring a data set that is not here to its folder, which is returned."""
        target = folder_of(settings)
        if settings.dataset in DRAWINGS:
            raise DataError(f"{facts.title} comes with the package; there is nothing to fetch")
        if target.is_dir() and any(target.iterdir()):
            raise DataError(f"'{target}' is there, but is not whole; move it away and fetch again")
        partial = target.parent / f".{settings.dataset}.partial"
        with _explained(target), _alone(partial):
            try:
                unpack(self._archive(facts, target, partial), partial / "unpacked", self.progress)
                is_cifar = settings.dataset == "cifar100"
                found = (_cifar100_in if is_cifar else _tree_in)(partial / "unpacked", facts)
            except BadArchive as bad:
                shutil.rmtree(partial)
                raise DataError(
                    f"the archive of {facts.title} is not what was expected ({bad}); "
                    f"fetch it again, or unpack it yourself as {layout_of(settings)}"
                ) from bad
            found.rename(target)
            shutil.rmtree(partial)
        return target

    def _archive(self, facts: Facts, target: Path, partial: Path) -> Path:
        """Return the archive of a data set: what the user has downloaded, or what is fetched to the partial folder."""
        if (archive := facts.archive) is None:
            raise DataError(f"nothing is known about where '{target}' comes from; put your images there")
        path = target.parent / archive.name
        if path.is_file():
            # Pictures do not shrink in an archive.
            check_space(target, max(path.stat().st_size, facts.num_bytes or 0), self.free_bytes, DataError)
            if archive.md5 is not None:
                _check_md5(path, archive.md5)
            return path
        try:
            if archive.hub is not None:
                # The archive and the images in it, which take about as much.
                check_space(target, 2 * (file_size(archive.hub, self.endpoint) or 0), self.free_bytes, DataError)
                return download(archive.hub, partial, self.endpoint)
            if archive.num_bytes is not None:
                check_space(target, archive.num_bytes + (facts.num_bytes or 0), self.free_bytes, DataError)
                return _downloaded(archive, partial)
        except HubError as reason:
            address = archive.hub.address if archive.hub else archive.address
            raise DataError(
                f"{facts.title} could not be fetched ({reason}); connect, or download {address} elsewhere "
                f"and put it at '{path}'"
            ) from reason
        raise DataError(
            f"{facts.title} cannot be fetched by a program; download {archive.name} from {archive.where}, "
            f"put it at '{path}' and fetch again, which unpacks it"
        )


def _downloaded(archive: Archive, folder: Path) -> Path:
    """Download an archive from its address with torchvision, which compares its sum."""
    from torchvision.datasets.utils import download_url

    try:
        download_url(archive.address, folder, archive.name, archive.md5)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise HubError(str(error)) from error
    except RuntimeError as error:
        raise BadArchive("its sum is wrong, or the download was cut short") from error
    return folder / archive.name


def _cifar100_in(folder: Path, facts: Facts) -> Path:
    """Return CIFAR-100 in an unpacked archive."""
    found = folder / cifar.FOLDER
    try:
        cifar.read_cifar100(found)
    except DataError as error:
        raise BadArchive(f"'{cifar.FOLDER}' in it cannot be read") from error
    return found


def _tree_in(folder: Path, facts: Facts) -> Path:
    """Return the image tree in an unpacked archive, which must have as many classes as is known."""
    found = find_tree(folder)
    try:
        num_classes = len(list_tree(found)[0].classes)
    except DataError as error:
        raise BadArchive(str(error).split(";")[0]) from error
    if facts.num_classes not in (None, num_classes):
        raise BadArchive(f"it has {num_classes} classes instead of {facts.num_classes}")
    return found


def _check_md5(archive: Path, expected: str) -> None:
    """Refuse an archive with another sum than the published one."""
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != expected:
        raise BadArchive(f"the md5 sum of '{archive}' is {found} instead of {expected}")


@contextmanager
def _alone(partial: Path) -> Iterator[None]:
    """Keep other processes from fetching the same data set, and leave no empty folder behind."""

    def refuse(holder: str) -> None:
        raise DataError(f"{holder} is fetching to '{partial.parent}'; wait until it is done")

    partial.mkdir(parents=True, exist_ok=True)
    with holding(partial.with_name(f"{partial.name}.lock"), refuse):
        try:
            yield
        finally:
            with suppress(OSError):
                partial.rmdir()


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Say what to do about a full disk or a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DataError(f"the disk of '{target}' is full; free some space and fetch again") from error
        raise DataError(
            f"'{target}' could not be written ({error.strerror or error}); choose another `data.root`"
        ) from error
