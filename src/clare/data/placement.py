"""Where decoded images are kept, and the memory for them."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from clare.data.settings import StoreChoice
from clare.data.store import ImageStore, LabelledImages
from clare.errors import DataError, SettingsError

Placement = Literal["device", "pinned", "mapped", "encoded"]
Notice = Callable[[str], None]

GIGA = 1 << 30


@dataclass(frozen=True)
class Machine:
    """Where a process computes, and the memory that is free for it."""

    device: torch.device
    device_bytes: int
    """Free memory of the device; on a CPU that of the host."""
    host_bytes: int


def this_machine(device: torch.device, num_processes: int = 1) -> Machine:
    """Look how much memory is free; processes with a store each share that of the host."""
    host_bytes = available_memory(Path("/")) // num_processes
    device_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else host_bytes
    return Machine(device, device_bytes, host_bytes)


def available_memory(root: Path) -> int:
    """Return the bytes that a program can still take, as the system's files under `root` tell."""
    meminfo = (root / "proc/meminfo").read_text() if (root / "proc/meminfo").exists() else ""
    entries = [line.split() for line in meminfo.splitlines() if line.startswith("MemAvailable:")]
    # Systems without this file do not tell what is free, so a quarter of what is there is taken to be.
    free = int(entries[0][1]) * 1024 if entries else _installed_memory() // 4
    group = root / "sys/fs/cgroup"
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - int(used)))


def _installed_memory() -> int:
    """Return the bytes of memory in the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def choose_placement(asked: StoreChoice, num_bytes: int, machine: Machine) -> Placement:
    """Resolve `auto`: the device up to half of its free memory, the host up to half of its own, else no pixels."""
    has_gpu = machine.device.type == "cuda"
    if asked == "pinned" and not has_gpu:
        raise SettingsError(
            "`data.store` is pinned, which needs a GPU, and this run is on the CPU; use auto, device or mapped"
        )
    if asked != "auto":
        return asked
    if 2 * num_bytes <= machine.device_bytes:
        return "device"
    return "pinned" if has_gpu and 2 * num_bytes <= machine.host_bytes else "encoded"


def allocate(num_bytes: int, placement: Placement, device: torch.device) -> Tensor:
    """Return uninitialised uint8 memory on the device, or page-locked memory of the host."""
    try:
        if placement == "device":
            return torch.empty(num_bytes, dtype=torch.uint8, device=device)
        return torch.from_numpy(page_locked(np.empty(num_bytes, np.uint8)))
    except (MemoryError, RuntimeError) as error:
        raise DataError(
            f"the images take {num_bytes / GIGA:.1f} GiB, for which there is no room in {placement} memory "
            f"({type(error).__name__}); set `data.store` to encoded, or lower `data.store_size`"
        ) from error


def page_locked(array: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Keep an array's pages in memory for as long as it lives, so that no read of it waits for a disk."""
    if array.nbytes == 0:
        return array
    # Not PyTorch's own pinned memory, which rounds up to a power of two: 33 GiB would take 64.
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = array.ctypes.data
    torch.cuda.check_error(int(runtime.cudaHostRegister(address, array.nbytes, 0)))
    weakref.finalize(array, runtime.cudaHostUnregister, address)
    return array


def place_images(images: LabelledImages, placement: Placement, device: torch.device) -> LabelledImages:
    """Move images that were read into memory or mapped to where they are kept, which may be the file itself."""
    store = images.store
    if placement == "device":
        return images.to(device)
    if placement != "pinned" or store.flat.is_pinned():
        return images
    flat = allocate(store.num_bytes, placement, device).copy_(store.flat)
    return LabelledImages(ImageStore(flat, store.sizes, store.channels), images.indices, images.labels)
