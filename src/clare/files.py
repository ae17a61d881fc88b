"""Write files so that a crash leaves either the old content or the new, never a part of it."""

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clare.errors import RunError

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
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RunError(
            f"could not write {path}: {error.strerror or error}; {_remedy(error)}choose another folder"
        ) from error


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


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, atomically."""
    # Those who write text alone are spared the seconds that torch takes.
    from safetensors.torch import save

    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(on_cpu, metadata))


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Read all tensors of a safetensors file onto the CPU."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path)
    return tensors


def _remedy(error: OSError) -> str:
    """Say what may help against a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or "
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "make it writable or "
    return ""
