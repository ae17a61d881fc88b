"""Files on the Hub have addresses for people, and when one does not come the reason is a clause."""

import errno
from pathlib import Path

import pytest
from huggingface_hub import constants
from local_server import serve_files

from clare.hub import SITE, HubError, HubFile, cache_folder, cached_file, download, file_size

MODEL = HubFile("someone/model", "model.safetensors")
PICTURES = HubFile("someone/pictures", "pictures.tar.gz", kind="dataset")


def test_addresses() -> None:
    assert MODEL.page == f"{SITE}/someone/model"
    assert MODEL.address == f"{SITE}/someone/model/resolve/main/model.safetensors"
    assert PICTURES.address == f"{SITE}/datasets/someone/pictures/resolve/main/pictures.tar.gz"


def test_a_file_is_measured_fetched_and_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    assert cached_file(MODEL) is None
    with serve_files() as server:
        server.files["/someone/model/resolve/main/model.safetensors"] = b"weights"
        assert file_size(MODEL, server.address) == 7
        path = download(MODEL, endpoint=server.address)
    assert cached_file(MODEL) == path
    assert path.read_bytes() == b"weights"


def test_reasons_are_clauses(tmp_path: Path) -> None:
    with serve_files() as server:
        with pytest.raises(HubError, match=r"^the Hub does not have it$"):
            download(PICTURES, tmp_path, server.address)
        server.files["/datasets/someone/pictures/resolve/main/pictures.tar.gz"] = b"pictures"
        server.error_code = "GatedRepo"
        with pytest.raises(HubError, match=r"^its owners ask to accept their conditions on its page first$"):
            download(PICTURES, tmp_path, server.address)
        server.error_code = ""
        (tmp_path / "file").write_text("")
        with pytest.raises(HubError, match="Error"):
            download(PICTURES, tmp_path / "file", server.address)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["file"]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*arguments: object, **settings: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", run_out)
    with pytest.raises(HubError, match=r"^the disk is full$"):
        download(MODEL, tmp_path)
