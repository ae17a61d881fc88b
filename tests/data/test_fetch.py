"""Data sets come whole or not at all: from a site, from the Hub, from an archive that the user has downloaded."""

import errno
import fcntl
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from data_worlds import md5_of, pack_tar, pack_zip, write_cifar, write_tree
from local_server import LocalServer, serve_files
from torchvision.datasets import CIFAR100

from clare.data.catalogue import CATALOGUE, Archive, Facts
from clare.data.fetch import Fetcher
from clare.data.inventory import take_inventory
from clare.data.settings import DataSettings
from clare.errors import DataError
from clare.hub import HubFile

HUB_PATH = "/datasets/someone/pictures/resolve/main/omnibenchmark1k.tar.gz"
HUB_FILE = HubFile("someone/pictures", "omnibenchmark1k.tar.gz", kind="dataset")


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """A server without files."""
    with serve_files() as running:
        yield running


def unused_address() -> str:
    """Return an address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def settings(root: Path, dataset: str) -> DataSettings:
    """Return settings for a data set below a folder."""
    return DataSettings(dataset=dataset, root=str(root))


def omni(num_classes: int | None = 3) -> Facts:
    """Return facts of a data set with a few classes that is on the Hub."""
    archive = Archive(HUB_FILE.name, HUB_FILE.page, hub=HUB_FILE)
    return replace(CATALOGUE["omnibenchmark1k"], num_classes=num_classes, num_train=None, archive=archive)


def rendition(content: bytes, num_classes: int | None = 3) -> Facts:
    """Return facts of a data set of which people download an archive."""
    archive = Archive("imagenet-r.zip", "https://example.org/r", md5_of(content))
    return replace(CATALOGUE["imagenet-r"], num_classes=num_classes, archive=archive)


def cifar(address: str, content: bytes, md5: str | None = None) -> Facts:
    """Return facts of a CIFAR-100 whose archive is elsewhere."""
    archive = Archive("cifar-100-python.tar.gz", address, md5 or md5_of(content), num_bytes=len(content))
    return replace(CATALOGUE["cifar100"], archive=archive)


def served_cifar(server: LocalServer, folder: Path, md5: str | None = None) -> Facts:
    """Serve a small CIFAR-100 and return its facts."""
    content = pack_tar(write_cifar(folder / "cifar-100-python"), folder / "cifar.tar.gz")
    server.files["/cifar.tar.gz"] = content
    return cifar(f"{server.address}/cifar.tar.gz", content, md5)


def leftovers(root: Path) -> list[str]:
    """Return what lies below a folder besides hidden files."""
    return sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))


def test_the_published_archive_is_torchvisions() -> None:
    archive = CATALOGUE["cifar100"].archive
    assert archive is not None
    assert (archive.address, archive.name, archive.md5) == (CIFAR100.url, CIFAR100.filename, CIFAR100.tgz_md5)
    assert archive.where == CIFAR100.url


def test_cifar100_is_fetched_checked_and_unpacked(server: LocalServer, tmp_path: Path) -> None:
    facts = served_cifar(server, tmp_path)
    root = tmp_path / "data"
    wanted = settings(root, "cifar100")
    assert Fetcher().fetch(wanted, facts) == root / "cifar-100-python"
    found = take_inventory(wanted)
    assert found is not None
    assert (found.num_classes, found.num_train, found.num_test) == (3, 6, 6)
    assert [entry.name for entry in root.iterdir()] == ["cifar-100-python"]


def test_an_archive_that_lies_there_is_taken_instead_of_a_download(server: LocalServer, tmp_path: Path) -> None:
    facts = served_cifar(server, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-100-python.tar.gz").write_bytes(server.files["/cifar.tar.gz"])
    Fetcher().fetch(settings(tmp_path / "data", "cifar100"), facts)
    assert server.requests == []
    assert leftovers(tmp_path / "data") == ["cifar-100-python", "cifar-100-python.tar.gz"]


def test_a_wrong_cifar_archive_is_refused(server: LocalServer, tmp_path: Path) -> None:
    facts = served_cifar(server, tmp_path, md5="0" * 32)
    with pytest.raises(DataError, match="archive of CIFAR-100 is not what was expected"):
        Fetcher().fetch(settings(tmp_path / "data", "cifar100"), facts)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_cut_download_leaves_nothing_and_the_next_one_succeeds(server: LocalServer, tmp_path: Path) -> None:
    facts = served_cifar(server, tmp_path)
    wanted = settings(tmp_path / "data", "cifar100")
    server.cut["/cifar.tar.gz"] = 2
    with pytest.raises(DataError, match="cut short"):
        Fetcher().fetch(wanted, facts)
    assert take_inventory(wanted) is None
    Fetcher().fetch(wanted, facts)
    assert take_inventory(wanted) is not None


def test_an_archive_with_something_else_in_it_is_refused(server: LocalServer, tmp_path: Path) -> None:
    content = pack_tar(write_tree(tmp_path / "other"), tmp_path / "other.tar.gz")
    server.files["/cifar.tar.gz"] = content
    facts = cifar(f"{server.address}/cifar.tar.gz", content)
    with pytest.raises(DataError, match="'cifar-100-python' in it cannot be read"):
        Fetcher().fetch(settings(tmp_path / "data", "cifar100"), facts)
    assert list((tmp_path / "data").iterdir()) == []


def test_without_a_network_cifar100_says_which_file_to_put_where(tmp_path: Path) -> None:
    address = f"{unused_address()}/cifar.tar.gz"
    with pytest.raises(DataError) as caught:
        Fetcher().fetch(settings(tmp_path, "cifar100"), cifar(address, b"0123456789"))
    message = str(caught.value)
    assert address in message
    assert f"put it at '{tmp_path / 'cifar-100-python.tar.gz'}'" in message
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_on_the_hub_is_fetched(server: LocalServer, tmp_path: Path) -> None:
    server.files[HUB_PATH] = pack_tar(write_tree(tmp_path / "omnibenchmark1k"), tmp_path / "a.tar.gz")
    told: list[tuple[str, int, int]] = []
    root = tmp_path / "data"
    wanted = settings(root, "omnibenchmark1k")
    fetcher = Fetcher(lambda what, done, total: told.append((what, done, total)), endpoint=server.address)
    assert fetcher.fetch(wanted, omni()) == root / "omnibenchmark1k"
    found = take_inventory(wanted)
    assert found is not None
    assert (found.num_classes, found.num_train, found.num_test) == (3, 9, 6)
    assert [entry.name for entry in root.iterdir()] == ["omnibenchmark1k"]
    assert {what for what, _, _ in told} == {"unpacking omnibenchmark1k.tar.gz"}
    assert all(0 <= done <= total for _, done, total in told)


def test_a_download_from_the_hub_that_is_cut_goes_on_where_it_stopped(server: LocalServer, tmp_path: Path) -> None:
    server.files[HUB_PATH] = pack_tar(write_tree(tmp_path / "omnibenchmark1k", size=40), tmp_path / "a.tar.gz")
    server.cut[HUB_PATH] = 1
    wanted = settings(tmp_path / "data", "omnibenchmark1k")
    Fetcher(endpoint=server.address).fetch(wanted, omni())
    assert server.num_gets() == 2
    assert take_inventory(wanted) is not None


def test_a_hub_that_does_not_answer_or_does_not_have_it(server: LocalServer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"could not be fetched \(the Hub does not have it\); connect, or download"):
        Fetcher(endpoint=server.address).fetch(settings(tmp_path, "omnibenchmark1k"), omni())
    with pytest.raises(DataError) as caught:
        Fetcher(endpoint=unused_address()).fetch(settings(tmp_path, "omnibenchmark1k"), omni())
    assert f"put it at '{tmp_path / 'omnibenchmark1k.tar.gz'}'" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_room_is_checked_before_anything_is_fetched(server: LocalServer, tmp_path: Path) -> None:
    server.files[HUB_PATH] = pack_tar(write_tree(tmp_path / "omnibenchmark1k"), tmp_path / "a.tar.gz")
    size = len(server.files[HUB_PATH])
    fetcher = Fetcher(endpoint=server.address, free_bytes=lambda path: 2 * size - 1)
    with pytest.raises(DataError, match="needs 0 MB and 0 MB are free there; free some space"):
        fetcher.fetch(settings(tmp_path / "data", "omnibenchmark1k"), omni())
    assert server.num_gets() == 0
    replace(fetcher, free_bytes=lambda path: 2 * size).fetch(settings(tmp_path / "data", "omnibenchmark1k"), omni())
    facts = served_cifar(server, tmp_path)
    with pytest.raises(DataError, match="needs 187 MB and 187 MB are free"):
        Fetcher(free_bytes=lambda path: 186_999_999).fetch(settings(tmp_path / "data", "cifar100"), facts)


def test_an_archive_from_a_browser_is_checked_and_unpacked(tmp_path: Path) -> None:
    content = pack_zip(write_tree(tmp_path / "source" / "some name"), tmp_path / "imagenet-r.zip")
    wanted = settings(tmp_path, "imagenet-r")
    assert Fetcher().fetch(wanted, rendition(content)) == tmp_path / "imagenet-r"
    found = take_inventory(wanted)
    assert found is not None
    assert (found.num_classes, found.num_train, found.num_test) == (3, 9, 6)
    assert (tmp_path / "imagenet-r.zip").is_file()


def test_an_archive_that_only_people_can_get_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Fetcher().fetch(settings(tmp_path / "data", "imagenet-r"), CATALOGUE["imagenet-r"])
    message = str(caught.value)
    assert "download imagenet-r.zip from https://drive.google.com/file/d/" in message
    assert f"put it at '{tmp_path / 'data' / 'imagenet-r.zip'}'" in message


def test_the_users_wrong_archive_is_refused_and_kept(tmp_path: Path) -> None:
    content = pack_zip(write_tree(tmp_path / "source"), tmp_path / "imagenet-r.zip")
    wanted = settings(tmp_path, "imagenet-r")
    with pytest.raises(DataError, match=f"md5 sum of .* is {md5_of(content)} instead of {md5_of(b'')}"):
        Fetcher().fetch(wanted, rendition(b""))
    with pytest.raises(DataError, match="it has 3 classes instead of 200"):
        Fetcher().fetch(wanted, rendition(content, 200))
    assert (tmp_path / "imagenet-r.zip").read_bytes() == content
    assert take_inventory(wanted) is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda good: b"<html>sign in first</html>", "neither a zip nor a tar file"),
        (lambda good: good[: len(good) // 2], "damaged"),
    ],
)
def test_what_is_no_archive_or_half_of_one_is_refused(
    make: Callable[[bytes], bytes], reason: str, tmp_path: Path
) -> None:
    good = pack_tar(write_tree(tmp_path / "omnibenchmark1k", num_train=20), tmp_path / "good.tar.gz")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / HUB_FILE.name).write_bytes(make(good))
    with pytest.raises(DataError, match=reason):
        Fetcher().fetch(settings(tmp_path / "data", "omnibenchmark1k"), omni())
    assert leftovers(tmp_path / "data") == [HUB_FILE.name]


@pytest.mark.parametrize("name", ["../outside.txt", "/tmp/clare-outside.txt"])
def test_nothing_is_unpacked_outside(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "data" / HUB_FILE.name
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as file:
        member = tarfile.TarInfo(name)
        member.size = 3
        file.addfile(member, io.BytesIO(b"bad"))
    with pytest.raises(DataError):
        Fetcher().fetch(settings(tmp_path / "data", "omnibenchmark1k"), omni())
    assert not (tmp_path / "data" / "outside.txt").exists()
    assert not Path("/tmp/clare-outside.txt").exists()


def test_a_tree_without_test_images_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path / "omnibenchmark1k")
    for image in (tmp_path / "omnibenchmark1k" / "test" / "n00000000").iterdir():
        image.unlink()
    pack_tar(tmp_path / "omnibenchmark1k", tmp_path / HUB_FILE.name)
    (tmp_path / "data").mkdir()
    (tmp_path / HUB_FILE.name).rename(tmp_path / "data" / HUB_FILE.name)
    with pytest.raises(DataError, match="has no images"):
        Fetcher().fetch(settings(tmp_path / "data", "omnibenchmark1k"), omni())


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "imagenet-a" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match="move it away and fetch again"):
        Fetcher().fetch(settings(tmp_path, "imagenet-a"), CATALOGUE["imagenet-a"])
    with pytest.raises(DataError, match="comes with the package"):
        Fetcher().fetch(settings(tmp_path, "quickdraw"), CATALOGUE["quickdraw"])


def test_a_full_disk_and_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    write_tree(tmp_path / "omnibenchmark1k")
    pack_tar(tmp_path / "omnibenchmark1k", tmp_path / HUB_FILE.name)
    (tmp_path / "omnibenchmark1k").rename(tmp_path / "away")

    def run_out(what: str, done: int, total: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match=r"the disk of .* is full; free some space"):
        Fetcher(run_out).fetch(settings(tmp_path, "omnibenchmark1k"), omni())
    assert not (tmp_path / "omnibenchmark1k").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"could not be written .*choose another `data\.root`"):
        Fetcher().fetch(settings(tmp_path / "file", "omnibenchmark1k"), omni())


def test_two_processes_do_not_fetch_the_same(tmp_path: Path) -> None:
    with (tmp_path / ".omnibenchmark1k.partial.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is fetching"):
            Fetcher().fetch(settings(tmp_path, "omnibenchmark1k"), omni())


KILLED = """
import sys, time
from dataclasses import replace
from clare.data.catalogue import CATALOGUE
from clare.data.fetch import Fetcher
from clare.data.settings import DataSettings

def show(what, done, total):
    print("unpacking", flush=True)
    time.sleep(60)

facts = replace(CATALOGUE["omnibenchmark1k"], num_classes=3)
Fetcher(show).fetch(DataSettings(dataset="omnibenchmark1k", root=sys.argv[1]), facts)
"""


def test_a_killed_unpacking_never_passes_for_complete(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / HUB_FILE.name).write_bytes(pack_tar(write_tree(tmp_path / "omnibenchmark1k"), tmp_path / "a.tar.gz"))
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(root)], stdout=subprocess.PIPE, env=os.environ.copy())
    assert process.stdout is not None
    assert process.stdout.readline() == b"unpacking\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wanted = settings(root, "omnibenchmark1k")
    assert take_inventory(wanted) is None
    assert (root / ".omnibenchmark1k.partial").is_dir()
    Fetcher().fetch(wanted, omni())
    assert take_inventory(wanted) is not None
    assert not (root / ".omnibenchmark1k.partial").exists()
