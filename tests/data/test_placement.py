"""The rule that says where images are kept, and the memory that it goes by."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clare.data.placement import Machine, allocate, available_memory, choose_placement, place_images, this_machine
from clare.data.store import ImageStore, LabelledImages
from clare.errors import DataError, SettingsError

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("num_bytes", "device", "host", "expected"),
    [
        (50, 100, 0, "device"),
        (51, 100, 102, "pinned"),
        (51, 100, 101, "encoded"),
        (0, 0, 0, "device"),
    ],
)
def test_auto_with_a_gpu(num_bytes: int, device: int, host: int, expected: str) -> None:
    assert choose_placement("auto", num_bytes, Machine(GPU, device, host)) == expected


@pytest.mark.parametrize(("num_bytes", "expected"), [(50, "device"), (51, "encoded")])
def test_auto_on_a_cpu_is_memory_or_a_file(num_bytes: int, expected: str) -> None:
    assert choose_placement("auto", num_bytes, Machine(CPU, 100, 100)) == expected


@given(num_bytes=st.integers(0, 1 << 50), device=st.integers(0, 1 << 40), host=st.integers(0, 1 << 40))
def test_what_is_asked_for_is_what_is_taken(num_bytes: int, device: int, host: int) -> None:
    for asked in ("device", "pinned", "mapped", "encoded"):
        assert choose_placement(asked, num_bytes, Machine(GPU, device, host)) == asked  # type: ignore[arg-type]


def test_pinned_needs_a_gpu() -> None:
    with pytest.raises(SettingsError, match="pinned, which needs a GPU"):
        choose_placement("pinned", 1, Machine(CPU, 100, 100))


def write_system(root: Path, meminfo: str | None, limit: str | None = None, used: int = 0) -> None:
    """Write the files that tell a system's memory."""
    for folder in ("proc", "sys/fs/cgroup"):
        (root / folder).mkdir(parents=True)
    if meminfo is not None:
        (root / "proc/meminfo").write_text(meminfo)
    if limit is not None:
        (root / "sys/fs/cgroup/memory.max").write_text(limit + "\n")
        (root / "sys/fs/cgroup/memory.current").write_text(f"{used}\n")


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [(None, 0, 4096_000), ("max", 7, 4096_000), ("3000000", 1000, 2_999_000), ("9000000", 0, 4096_000), ("5", 9, 0)],
)
def test_available_memory_is_the_least_of_machine_and_group(
    tmp_path: Path, limit: str | None, used: int, expected: int
) -> None:
    write_system(tmp_path, "MemTotal: 9000 kB\nMemFree: 1000 kB\nMemAvailable: 4000 kB\n", limit, used)
    assert available_memory(tmp_path) == expected


def test_a_system_that_does_not_tell_has_a_quarter_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clare.data.placement._installed_memory", lambda: 4000)
    assert available_memory(tmp_path) == 1000


def test_processes_share_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clare.data.placement.available_memory", lambda root: 1000)
    assert this_machine(CPU, num_processes=4) == Machine(CPU, 250, 250)


def test_memory_that_is_not_there_is_refused_with_a_way_out() -> None:
    with pytest.raises(DataError, match=r"GiB, for which there is no room in device memory .*to encoded"):
        allocate(1 << 60, "device", CPU)


def test_mapped_images_are_copied_into_memory_for_the_device() -> None:
    flat = torch.arange(12, dtype=torch.uint8)
    images = LabelledImages(
        ImageStore(flat, torch.tensor([[2, 2]]), 3, is_mapped=True), torch.arange(1), torch.tensor([5])
    )
    assert place_images(images, "mapped", CPU) is images
    placed = place_images(images, "device", CPU)
    assert not placed.store.is_mapped
    assert placed.store.flat.data_ptr() != flat.data_ptr()
    assert torch.equal(placed.store.flat, flat)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinned_memory_is_page_locked_and_let_go() -> None:
    flat = torch.arange(3 * 8 * 8, dtype=torch.uint8)
    images = LabelledImages(ImageStore(flat, torch.tensor([[8, 8]]), 3), torch.arange(1), torch.tensor([5]))
    placed = place_images(images, "pinned", GPU)
    assert placed.store.flat.is_pinned()
    assert placed.store.device == CPU
    assert torch.equal(placed.store.flat, flat)
    assert place_images(placed, "pinned", GPU) is placed
    machine = this_machine(GPU)
    assert 0 < machine.device_bytes <= torch.cuda.get_device_properties(0).total_memory
    del placed
    # The pages can only be locked again if they were let go.
    for _ in range(3):
        assert allocate(1 << 22, "pinned", GPU).is_pinned()
