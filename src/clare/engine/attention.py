"""Which kernel computes attention: the fastest that is right, and of which the same work gives the same bits."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ORDER = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The fastest on Hopper first; PyTorch takes the first that knows the shape."""
HOPPER = (9, 0)
PROBE = (4, 12, 197, 64)
"""Images, heads, tokens and width of a head of a ViT-B/16."""


def attention_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Prefer cuDNN's kernel for what has no gradient, where it is faster and right; else leave PyTorch its choice."""
    # Twice the same gradient is not promised of cuDNN's backward pass, and training must repeat bit for bit.
    if torch.is_grad_enabled() or device.type != "cuda" or torch.cuda.get_device_capability(device) < HOPPER:
        return nullcontext()
    return sdpa_kernel(ORDER, set_priority=True) if is_right(ORDER[0], device) else nullcontext()


@cache
def is_right(kernel: SDPBackend, device: torch.device) -> bool:
    """Tell whether a kernel is there and gives what attention is defined as, but for the rounding of bf16."""
    random = torch.Generator(device).manual_seed(0)
    q, k, v = (torch.randn(PROBE, generator=random, device=device, dtype=torch.bfloat16) for _ in range(3))
    try:
        with sdpa_kernel(kernel):
            found = F.scaled_dot_product_attention(q, k, v)
    except RuntimeError:
        return False
    expected = torch.softmax(q.float() @ k.float().mT / PROBE[-1] ** 0.5, dim=-1) @ v.float()
    return torch.allclose(found.float(), expected, atol=0.02)
