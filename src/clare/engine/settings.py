"""How the engine uses the machine; none of these settings is part of a method."""

from typing import Literal

from pydantic import Field

from clare.settings import Settings


class EngineSettings(Settings):
    """Device, precision and batch size of evaluation."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where to compute; auto takes a GPU if there is one."
    )
    num_devices: int = Field(1, ge=1, le=1024, description="Processes on this machine, one for each GPU or CPU rank.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="auto is bf16 on GPUs and fp32 on CPUs; one with AVX-512 BF16 computes features faster in bf16.",
    )
    compile: Literal["auto", "off", "graph", "fused"] = Field(
        "auto",
        description="graph records each kind of step once and replays it as a CUDA graph, with the numbers of plain "
        "steps; fused also compiles it, which is faster after a minute's wait and rounds otherwise; off does neither; "
        "auto is graph on a single GPU.",
    )
    eval_batch_size: int = Field(250, ge=1, le=65_536, description="Images per batch without gradient.")
    threads: int = Field(0, ge=0, le=1024, description="CPU threads; 0 leaves PyTorch's own choice.")
