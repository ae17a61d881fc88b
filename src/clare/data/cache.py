"""Images in one file that is mapped into memory and found again by the next run.

The file holds the pixels of all images, or the bytes of their files, then a JSON index, then the length of the index
in 8 bytes and 8 bytes that say what the file is. It is written under another name and renamed when whole, so whoever
opens it sees all of it.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clare.data.decode import append_all
from clare.data.placement import Notice
from clare.data.store import num_store_bytes
from clare.errors import DataError
from clare.locks import holding
from clare.sealed import digest_of

VERSION = 2
MAGIC = b"CLAREPIX"
NUM_TRAILER_BYTES = 16


class Contents(NamedTuple):
    """All images of some files, side by side: their pixels, or the bytes of files that are yet to be decoded."""

    flat: Tensor
    sizes: Tensor
    """int64 (N, 2): height and width of each image"""
    skipped: list[int]
    """Positions of the files that gave no image."""
    is_mapped: bool
    num_bytes: Tensor | None = None
    """int64 (N,): bytes of each file; none for pixels"""


Fill = Callable[[BinaryIO], dict[str, Any]]
"""Writes images into a file and returns what its index shall say of them: `sizes`, `skipped`, and more."""


class StaleCache(Exception):
    """A cache file that cannot be used, with the reason as a clause."""


def cache_folder(asked: str, environment: Mapping[str, str]) -> Path:
    """Return the folder that was asked for, or the package's own in the user's cache folder."""
    if asked:
        return Path(asked).expanduser()
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clare"


def fingerprint(root: Path, paths: Sequence[Path], form: Mapping[str, object]) -> str:
    """Return a hash of the files' names, sizes and times of change, and of what is made of them."""
    files = [[path.relative_to(root).as_posix(), *_size_and_time(path)] for path in paths]
    return digest_of(json.dumps([VERSION, dict(form), files], sort_keys=True).encode())


def _size_and_time(path: Path) -> tuple[int, int]:
    """Return a file's size and time of change, and zeros for a link that leads nowhere."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def open_or_write(path: Path, mark: str, fill: Fill, notice: Notice) -> Contents:
    """Map the file if it has this fingerprint, else write it first; of several processes only one writes."""
    try:
        return read_cache(path, mark)
    except StaleCache:
        pass
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with holding(path.with_name(f".{path.name}.lock"), when_held=lambda holder: None):
            try:
                return read_cache(path, mark)
            except StaleCache as reason:
                if path.exists():
                    notice(f"the image cache '{path}' {reason} and is written anew")
                else:
                    notice(f"images are kept in '{path}'")
            write_cache(path, mark, fill)
            return read_cache(path, mark)
    except OSError as error:
        raise DataError(
            f"could not write the image cache '{path}' ({error.strerror or error}); "
            "free some space, or set `data.cache` to another folder"
        ) from error


def read_cache(path: Path, mark: str) -> Contents:
    """Map a cache file into memory, or say why it cannot be used."""
    try:
        with path.open("rb") as file:
            index = _read_index(file)
            if index.get("fingerprint") != mark:
                raise StaleCache("was made from other files or settings")
            # Private to this process: a write by mistake would not reach the file.
            pixels = np.memmap(file, dtype=np.uint8, mode="c")
    except OSError as error:
        raise StaleCache(f"cannot be read ({error.strerror or error})") from None
    sizes = torch.tensor(index["sizes"], dtype=torch.int64).view(-1, 2)
    flat, lengths = torch.from_numpy(pixels)[: index["num_bytes"]], index.get("lengths")
    num_bytes = None if lengths is None else torch.tensor(lengths, dtype=torch.int64)
    return Contents(flat, sizes, index["skipped"], True, num_bytes)


def _read_index(file: BinaryIO) -> dict[str, Any]:
    """Read the index at the end of a cache file; refuse a file that is not whole or not ours."""
    num_file_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, num_file_bytes - NUM_TRAILER_BYTES))
    trailer = file.read()
    if not trailer.endswith(MAGIC) or len(trailer) < NUM_TRAILER_BYTES:
        raise StaleCache("is cut off, or no image cache,")
    num_index_bytes = int.from_bytes(trailer[:8], "little")
    try:
        file.seek(num_file_bytes - NUM_TRAILER_BYTES - num_index_bytes)
        index: dict[str, Any] = json.loads(file.read(num_index_bytes))
        is_whole = index["num_bytes"] + num_index_bytes + NUM_TRAILER_BYTES == num_file_bytes
        if index["version"] != VERSION or not is_whole:
            raise StaleCache("is damaged or of another version")
    except (OSError, ValueError, KeyError, TypeError):
        raise StaleCache("is damaged") from None
    return index


def write_cache(path: Path, mark: str, fill: Fill) -> None:
    """Write images and their index, sync, and rename; the caller holds the lock."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            found = fill(file)
            index = {"version": VERSION, "fingerprint": mark, "num_bytes": file.tell(), **found}
            encoded = json.dumps(index).encode()
            file.write(encoded + len(encoded).to_bytes(8, "little") + MAGIC)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_pixels(file: BinaryIO, images: Iterable[Tensor | None], channels: int) -> dict[str, Any]:
    """Write decoded images one after another as they come, and return what the index says of them."""
    sizes, skipped = append_all(images, lambda image: file.write(image.cpu().contiguous().numpy().data))
    file.write(bytes(num_store_bytes(sizes, channels) - file.tell()))
    return {"channels": channels, "skipped": skipped, "sizes": sizes.tolist()}
