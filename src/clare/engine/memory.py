"""How much memory a task takes at most."""

import resource
import sys

import torch


def reset_peak_memory(device: torch.device) -> None:
    """Let the peak of a GPU count from here; that of a process on a CPU always counts from its start."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Return the most bytes that tensors took on the GPU since the last reset, or this process ever took on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kilobytes elsewhere.
    return peak if sys.platform == "darwin" else 1024 * peak
