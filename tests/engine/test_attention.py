"""The kernels of attention: cuDNN's first for what has no gradient, where it is there and right."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from clare.engine import attention
from clare.engine.attention import ORDER, attention_kernels, is_right
from clare.engine.context import Context

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[SDPBackend] | None]:
    """Return ask(device, capability, right, grad): the order of kernels that is set, or nothing."""

    def ask(
        device: torch.device = GPU, capability: tuple[int, int] = (9, 0), right: bool = True, grad: bool = False
    ) -> list[SDPBackend] | None:
        asked: list[list[SDPBackend]] = []
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(attention, "is_right", lambda kernel, device: right)
        monkeypatch.setattr(attention, "sdpa_kernel", lambda order, set_priority: asked.append(order))
        with torch.set_grad_enabled(grad):
            attention_kernels(device)
        return asked[0] if asked else None

    return ask


def test_cudnn_comes_first_where_it_is_fast_right_and_nothing_is_trained(
    chosen: Callable[..., list[SDPBackend] | None],
) -> None:
    assert chosen() == ORDER
    assert chosen(capability=(10, 0)) == ORDER
    assert ORDER[0] == SDPBackend.CUDNN_ATTENTION
    assert chosen(capability=(8, 9)) is None
    assert chosen(right=False) is None
    assert chosen(grad=True) is None
    assert chosen(device=CPU) is None


def test_a_kernel_that_is_missing_or_wrong_is_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    is_right.cache_clear()
    assert not is_right(SDPBackend.CUDNN_ATTENTION, CPU)
    assert is_right(SDPBackend.FLASH_ATTENTION, CPU)
    is_right.cache_clear()
    plain = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda q, k, v: plain(q, k, v).roll(1, 0))
    assert not is_right(SDPBackend.FLASH_ATTENTION, CPU)
    is_right.cache_clear()


@pytest.fixture
def in_order() -> Callable[[], list[int]]:
    """Return a function that tells which kernels are preferred, as PyTorch has it."""
    return lambda: list(torch._C._get_sdp_priority_order())


def test_on_a_cpu_nothing_changes(context: Callable[..., Context], in_order: Callable[[], list[int]]) -> None:
    before = in_order()
    with torch.no_grad(), context(device="cpu").ranks.autocast():
        assert in_order() == before


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_cudnn_is_preferred_without_gradient_and_forgotten_after(
    context: Callable[..., Context], in_order: Callable[[], list[int]]
) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("this GPU is older than those on which cuDNN's kernel is preferred")
    ranks, before = context(device="cuda").ranks, in_order()
    assert is_right(SDPBackend.CUDNN_ATTENTION, ranks.device)
    with ranks.autocast():
        assert in_order() == before
    with torch.no_grad(), ranks.autocast():
        assert in_order()[0] == SDPBackend.CUDNN_ATTENTION.value
        q = torch.randn(250, 12, 197, 64, device="cuda", dtype=torch.bfloat16)
        first = F.scaled_dot_product_attention(q, q, q)
        assert all(torch.equal(F.scaled_dot_product_attention(q, q, q), first) for _ in range(20))
    assert in_order() == before


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_the_kernel_of_training_gives_the_same_gradient_every_time() -> None:
    q, k, v = (torch.randn(256, 12, 197, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")

    def gradients() -> torch.Tensor:
        with attention_kernels(q.device):
            loss = F.scaled_dot_product_attention(q, k, v).float().square().sum()
        return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, (q, k, v))])

    first = gradients()
    assert all(torch.equal(gradients(), first) for _ in range(20))
