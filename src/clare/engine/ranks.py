"""The processes that learn together: launched and placed by Fabric, reduced by hand."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from clare.engine.attention import attention_kernels
from clare.engine.settings import EngineSettings
from clare.errors import SettingsError

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Ranks:
    """This process among its peers, its device and its precision."""

    def __init__(self, settings: EngineSettings) -> None:
        self.accelerator = resolve_device(settings.device)
        bf16 = settings.precision == "bf16" or (settings.precision == "auto" and self.accelerator == "cuda")
        self.precision = "bf16" if bf16 else "fp32"
        self.num_devices, self.num_nodes = settings.num_devices, 1
        # torchrun has already decided both when it started us.
        if local := int(os.environ.get("LOCAL_WORLD_SIZE", 0)):
            self.num_devices, self.num_nodes = local, int(os.environ.get("WORLD_SIZE", local)) // local

    @cached_property
    def fabric(self) -> "Fabric":
        """What launches, places and casts; a process that answers alone does without, as its import takes a second."""
        from lightning.fabric import Fabric

        return Fabric(
            accelerator=self.accelerator,
            devices=self.num_devices,
            num_nodes=self.num_nodes,
            strategy="auto" if self.is_alone else "ddp",
            precision="bf16-mixed" if self.precision == "bf16" else "32-true",
        )

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process."""
        return self.num_devices * self.num_nodes == 1

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        if self.is_alone:
            return torch.device("cuda", 0) if self.accelerator == "cuda" else torch.device("cpu")
        return self.fabric.device

    @property
    def rank(self) -> int:
        """This process's number, from zero."""
        return 0 if self.is_alone else self.fabric.global_rank

    @property
    def world_size(self) -> int:
        """How many processes learn together."""
        return 1 if self.is_alone else self.fabric.world_size

    @property
    def can_capture(self) -> bool:
        """Whether steps can be recorded as CUDA graphs: on one GPU, where no other rank must be waited for."""
        return self.device.type == "cuda" and self.world_size == 1

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute in the chosen precision, as Fabric does, and with the kernels of attention that are best for it."""
        with torch.autocast(self.accelerator, torch.bfloat16, self.precision == "bf16"), attention_kernels(self.device):
            yield

    def sum_(self, tensor: Tensor) -> Tensor:
        """Add a tensor up over all processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Take over the first process's values, in place."""
        if self.world_size > 1:
            dist.broadcast(tensor, 0)
        return tensor

    def barrier(self) -> None:
        """Wait for the other processes."""
        if not self.is_alone:
            self.fabric.barrier()


def is_first_rank() -> bool:
    """Tell, also before the ranks are launched, whether this process writes and speaks: the launchers number theirs."""
    return os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("RANK", "0") == "0"


def resolve_device(device: str) -> str:
    """Resolve `auto`, and refuse a GPU that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SettingsError("`engine.device` is cuda, but PyTorch sees no GPU; use auto or cpu, or run `clare doctor`")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device
