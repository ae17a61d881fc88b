"""What every benchmark needs to know about the machine: its name, its versions, its memory, and when work is done."""

import ctypes
import json
import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import timm
import torch

from clare.engine.settings import EngineSettings
from clare.version import __version__

PROCESS = Path("/proc/self")
RESET_PEAK = "5"
"""What Linux takes in `clear_refs` to bring the peak resident size back to the present one."""


def find_device() -> torch.device:
    """Return the GPU if there is one, the CPU otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def synchronise(device: torch.device) -> None:
    """Wait until all queued work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long some work takes that waits for the device by itself."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def device_name(device: torch.device) -> str:
    """Return the GPU's name, or the processor's with the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} threads"


def compile_choices() -> tuple[str, ...]:
    """Return the values that `engine.compile` takes."""
    return get_args(EngineSettings.model_fields["compile"].annotation)


def versions() -> dict[str, str]:
    """Return the versions that speed depends on."""
    return {"clare": __version__, "torch": torch.__version__, "timm": timm.__version__}


def used_memory(device: torch.device) -> int | None:
    """Return the bytes now in use: allocated on a GPU, resident of this process on a CPU; none where unknown."""
    return torch.cuda.memory_allocated() if device.type == "cuda" else _status_bytes("VmRSS")


def peak_memory(device: torch.device) -> int | None:
    """Return the most bytes in use since the last reset, of the same kind as `used_memory`."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else _status_bytes("VmHWM")


def reset_peak_memory(device: torch.device) -> bool:
    """Count the peak from here on, and say whether the system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return True
    try:
        (PROCESS / "clear_refs").write_text(RESET_PEAK)
    except OSError:
        return False
    return True


def growth_mb(before: int | None, peak: int | None) -> float | None:
    """Return by how many MB a peak is above what was in use before; none where either is unknown."""
    return None if before is None or peak is None else round((peak - before) / 1e6, 1)


def _status_bytes(field: str) -> int | None:
    """Read a size from Linux's account of this process."""
    try:
        lines = (PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def drop_from_cache(files: Sequence[Path]) -> float | None:
    """Write files out and drop them from memory; return the share that is gone, none where the system cannot."""
    if not hasattr(os, "posix_fadvise"):
        return None
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return sum(not _is_cached(path) for path in files) / len(files)


def _is_cached(path: Path) -> bool:
    """Tell whether any page of a file is in memory, without reading it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        pages = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        start = ctypes.c_ubyte.from_buffer(view)
        library = ctypes.CDLL(None, use_errno=True)
        failed = library.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(view)), pages)
        # The view cannot be closed while something points into it.
        del start
        if failed:
            raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return any(page & 1 for page in pages)


def write_json(path: Path | None, result: dict[str, Any]) -> None:
    """Write a benchmark's result where a path is given."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
