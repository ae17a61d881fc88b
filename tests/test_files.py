"""Files are written whole or not at all."""

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from clare.errors import RunError
from clare.files import read_tensors, write_bytes, write_json, write_tensors, write_text


def test_bytes_text_and_json_are_written_with_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    write_bytes(folder / "bytes", b"\x00\x01")
    write_text(folder / "text", "naïve\n")
    write_json(folder / "json", {"name": "Ω", "list": [1, 2.5, None]})
    assert (folder / "bytes").read_bytes() == b"\x00\x01"
    assert (folder / "text").read_bytes() == "naïve\n".encode()
    assert json.loads((folder / "json").read_text(encoding="utf-8")) == {"name": "Ω", "list": [1, 2.5, None]}
    assert "Ω" in (folder / "json").read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["bytes", "json", "text"]


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "a long old text")
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_the_content_is_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    sync, replace = os.fsync, Path.replace

    def watched_sync(descriptor: int) -> None:
        happened.append("sync")
        sync(descriptor)

    def watched_replace(source: Path, target: Path) -> Path:
        happened.append("rename")
        assert source.parent == target.parent
        assert source.read_bytes() == b"content"
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    write_bytes(tmp_path / "file", b"content")
    assert happened == ["sync", "rename", "sync"]


@pytest.mark.parametrize(("owner", "stage"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, stage: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "file"
    write_text(path, "old")
    monkeypatch.setattr(owner, stage, full)
    with pytest.raises(RunError, match=r"could not write .*file: No space left on device; .*another folder"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "file"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_a_target_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=r"could not write .*folder: Is a directory; choose another folder"):
        write_text(tmp_path / "folder", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_tensors_come_back_to_the_bit(tmp_path: Path) -> None:
    tensors = {
        "values": torch.tensor([0.1, -0.0, float("nan"), float("inf"), 1e-42]),
        "mask": torch.tensor([True, False]),
        "coordinates": torch.tensor([3, 1], dtype=torch.int32),
        "double": torch.tensor([0.1], dtype=torch.float64),
        "transposed": torch.arange(6.0).view(2, 3).T,
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5),
    }
    tensors["values"].requires_grad_(True)
    write_tensors(tmp_path / "file.safetensors", tensors, {"format": "1"})
    loaded = read_tensors(tmp_path / "file.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].numpy().tobytes() == tensor.detach().contiguous().numpy().tobytes()
        assert not loaded[name].requires_grad


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone = tmp_path / f".page.html.{ended.pid}.tmp"
    others = {f".page.html.{os.getppid()}.tmp", f".other.html.{ended.pid}.tmp", ".page.html.mine.tmp"}
    for name in (gone.name, *others):
        (tmp_path / name).write_text("cut o")
    write_text(tmp_path / "page.html", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", *others}
