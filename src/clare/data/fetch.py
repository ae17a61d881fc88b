"""Bring a data set here: from its publisher, from the Hub, or from an archive that the user has downloaded.

Everything happens in a hidden folder beside the target and is renamed when whole, so that what was cut short never
passes for a data set.
"""

import errno
import hashlib
import http.client
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from clare.data import cifar
from clare.data.archives import BadArchive, Progress, find_tree, unpack
from clare.data.catalogue import Archive, Facts
from clare.data.folders import list_tree
from clare.data.inventory import folder_of, layout_of
from clare.data.settings import DRAWINGS, DataSettings
from clare.disk import check_space, free_space
from clare.errors import DataError
from clare.hub import HubError, download, file_size
from clare.locks import holding


class CifarArchive(NamedTuple):
    """Where CIFAR-100's archive is, how to tell that it is the right one, and how large it is."""

    url: str
    name: str
    md5: str
    num_bytes: int


def published_cifar100() -> CifarArchive:
    """Return the archive that torchvision knows."""
    from torchvision.datasets import CIFAR100

    return CifarArchive(CIFAR100.url, CIFAR100.filename, CIFAR100.tgz_md5, 169_001_437)


@dataclass(frozen=True)
class Fetcher:
    """Fetches data sets; who knows better than the defaults where they are and how much room there is can say so."""

    progress: Progress = lambda what, done, total: None
    free_bytes: Callable[[Path], int] = free_space
    endpoint: str | None = None
    cifar100: CifarArchive | None = None

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
                if settings.dataset == "cifar100":
                    found = self._get_cifar100(facts, target, partial)
                else:
                    found = self._get_tree(facts, target, partial)
            except BadArchive as bad:
                shutil.rmtree(partial)
                raise DataError(
                    f"the archive of {facts.title} is not what was expected ({bad}); "
                    f"fetch it again, or unpack it yourself as {layout_of(settings)}"
                ) from bad
            found.rename(target)
            shutil.rmtree(partial)
        return target

    def _get_cifar100(self, facts: Facts, target: Path, partial: Path) -> Path:
        """Return an unpacked CIFAR-100 below the partial folder."""
        source = self.cifar100 or published_cifar100()
        archive = target.parent / source.name
        if archive.is_file():
            check_space(target, facts.num_bytes or 0, self.free_bytes, DataError)
            _check_md5(archive, source.md5)
        else:
            check_space(target, source.num_bytes + (facts.num_bytes or 0), self.free_bytes, DataError)
            archive = self._download_cifar100(source, target, partial)
        unpack(archive, partial / "unpacked", self.progress)
        found = partial / "unpacked" / cifar.FOLDER
        try:
            cifar.read_cifar100(found)
        except DataError as error:
            raise BadArchive(f"'{cifar.FOLDER}' in it cannot be read") from error
        return found

    def _download_cifar100(self, source: CifarArchive, target: Path, partial: Path) -> Path:
        """Download CIFAR-100's archive with torchvision, which compares its sum."""
        from torchvision.datasets.utils import download_url

        try:
            download_url(source.url, partial, source.name, source.md5)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise
            raise DataError(
                f"CIFAR-100 could not be fetched from {source.url} ({error}); connect, or download it elsewhere and "
                f"put it at '{target.parent / source.name}'"
            ) from error
        except RuntimeError as error:
            raise BadArchive("its sum is wrong, or the download was cut short") from error
        return partial / source.name

    def _get_tree(self, facts: Facts, target: Path, partial: Path) -> Path:
        """Return an unpacked image tree below the partial folder."""
        if facts.archive is None:
            raise DataError(f"nothing is known about where '{target}' comes from; put your images there")
        archive = target.parent / facts.archive.name
        if archive.is_file():
            # Pictures do not shrink in an archive.
            check_space(target, archive.stat().st_size, self.free_bytes, DataError)
            if facts.archive.md5 is not None:
                _check_md5(archive, facts.archive.md5)
        else:
            archive = self._download_archive(facts, facts.archive, target, partial)
        unpack(archive, partial / "unpacked", self.progress)
        found = find_tree(partial / "unpacked")
        try:
            num_classes = len(list_tree(found)[0].classes)
        except DataError as error:
            raise BadArchive(str(error).split(";")[0]) from error
        if facts.num_classes not in (None, num_classes):
            raise BadArchive(f"it has {num_classes} classes instead of {facts.num_classes}")
        return found

    def _download_archive(self, facts: Facts, archive: Archive, target: Path, partial: Path) -> Path:
        """Download an archive from the Hub; one that is only behind a page for people is left to the user."""
        place = target.parent / archive.name
        if archive.hub is None:
            raise DataError(
                f"{facts.title} cannot be fetched by a program; download {archive.name} from {archive.where}, "
                f"put it at '{place}' and fetch again, which unpacks it"
            )
        try:
            # The archive and the images in it, which take about as much.
            check_space(target, 2 * (file_size(archive.hub, self.endpoint) or 0), self.free_bytes, DataError)
            return download(archive.hub, partial, self.endpoint)
        except HubError as reason:
            raise DataError(
                f"{facts.title} could not be fetched ({reason}); connect, or download {archive.hub.address} elsewhere "
                f"and put it at '{place}'"
            ) from reason


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
