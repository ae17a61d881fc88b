"""Write files so that a crash leaves either the old content or the new, never a part of it."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from clare.errors import ClareError, RunError
from clare.sealed import digest_of, read_bytes

RESTORE = "restore it from a copy, or remove the run's folder and run again"
"""What to do about a damaged file of a run."""

if TYPE_CHECKING:
    from torch import Tensor


def write_bytes(path: Path, data: bytes) -> None:
    """Write to a temporary name beside the target, sync, and rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
        _clear_leftovers(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RunError(
            f"could not write {path}: {error.strerror or error}; {_remedy(error)}choose another folder"
        ) from error


def _clear_leftovers(path: Path) -> None:
    """Remove what processes left that were killed while they wrote this file."""
    start, end = f".{path.name}.", ".tmp"
    for name in os.listdir(path.parent):
        number = name.removeprefix(start).removesuffix(end)
        if name == f"{start}{number}{end}" and number.isdecimal() and not _is_alive(int(number)):
            (path.parent / name).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    """Tell whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, before work is done for it; nothing is left there."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise RunError(
            f"could not write {folder}: {error.strerror or error}; {_remedy(error)}choose another folder"
        ) from None


@contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Remove what of a folder and those above it was not there before the block and is empty after it."""
    missing = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    try:
        yield
    finally:
        with suppress(OSError):
            for path in missing:
                path.rmdir()


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; without this a power cut could bring the old name back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> str:
    """Write a value as indented JSON, atomically, and return the digest of the bytes."""
    data = (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
    write_bytes(path, data)
    return digest_of(data)


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: dict[str, str] | None = None) -> str:
    """Write tensors as safetensors, atomically, and return the digest of the bytes."""
    data = bytes_of(tensors, metadata)
    write_bytes(path, data)
    return digest_of(data)


def bytes_of(tensors: "Mapping[str, Tensor]", metadata: dict[str, str] | None = None) -> bytes:
    """Return tensors as a file of safetensors holds them."""
    # Those who write text alone are spared the seconds that torch takes.
    from safetensors.torch import save

    return save({name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}, metadata)


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Read all tensors of a safetensors file of a run onto the CPU."""
    return parse_tensors(path, read_bytes(path, RunError, RESTORE), RunError, RESTORE)


def parse_tensors(path: Path, data: bytes, kind: type[ClareError], remedy: str) -> "dict[str, Tensor]":
    """Return all tensors that a safetensors file with these bytes holds, on the CPU."""
    from safetensors.torch import load

    try:
        tensors: dict[str, Tensor] = load(data)
    except (SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise kind(f"{path} is no file of tensors ({error}); {remedy}") from error
    return tensors


def _remedy(error: OSError) -> str:
    """Say what may help against a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or "
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "make it writable or "
    return ""
