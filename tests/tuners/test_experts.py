"""Experts, probers and routers against the authors' module, and a choice of routers worked out by hand."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clare.tuners.experts import ADAPTER, GATE, ExpertBlock, ExpertSettings, chosen_routers, entropies, top_softmax

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "care.safetensors")
SETTINGS = ExpertSettings(bottleneck=3, shared_bottleneck=5)


def grown(num_tasks: int) -> ExpertBlock:
    """Return the recorded block after so many tasks."""
    block = ExpertBlock(8, SETTINGS, torch.Generator()).eval()
    for name in ADAPTER:
        block.get_parameter(f"shared_{name}").data.copy_(GOLDEN[f"shared.{name}"][None])
    for task in range(num_tasks):
        block.grow(3, torch.Generator().manual_seed(task))
        for name in (*ADAPTER, *GATE):
            recorded = GOLDEN[f"expert{task}.{name}"]
            assert block.get_parameter(name)[-1].shape == recorded.shape
            if task >= 2 and name in ADAPTER:
                torch.testing.assert_close(
                    block.get_parameter(name)[-1].data, GOLDEN[f"start{task}.{name}"], rtol=0, atol=1e-6
                )
            block.get_parameter(name).data[-1] = recorded
    return block


@pytest.mark.parametrize("num_tasks", [1, 2, 3, 4, 5])
def test_outputs_are_the_recorded_ones(num_tasks: int) -> None:
    block, sizes, last = grown(num_tasks), torch.full((num_tasks,), 3), num_tasks - 1
    unknown, _ = block(GOLDEN["x"], sizes, None)
    torch.testing.assert_close(unknown, GOLDEN[f"unknown{last}"], rtol=0, atol=1e-5)
    known, logits = block(GOLDEN["x"], sizes, last)
    torch.testing.assert_close(known, GOLDEN[f"known{last}"], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits, GOLDEN[f"known_logits{last}"], rtol=0, atol=1e-5)
    if num_tasks == 5:
        earlier, logits = block(GOLDEN["x"], sizes, 1)
        torch.testing.assert_close(earlier, GOLDEN["earlier1"], rtol=0, atol=1e-5)
        torch.testing.assert_close(logits, GOLDEN["earlier1_logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("num_kept", "expected"),
    [(3, [[0.260955, 0.580767, 0.158277], [1, 0, 0]]), (2, [[0.310026, 0.689974, 0], [1, 0, 0]])],
)
def test_two_routers_by_hand(num_kept: int, expected: list[list[float]]) -> None:
    found = entropies(torch.tensor([[[2.0, 0.0], [0.1, 0.0], [3.0, 0.0]]]))
    torch.testing.assert_close(found, torch.tensor([[0.365334, 0.691899, 0.190865]]), rtol=0, atol=1e-6)
    assert chosen_routers(found, 2, False).tolist() == [[2, 0]]
    assert chosen_routers(found, 2, True).tolist() == [[2, 0]]
    assert chosen_routers(found[:, :2], 1, True).tolist() == [[1]]
    closed = -torch.inf
    scores = torch.tensor([[[0.2, 1.0, -0.3], [0.5, closed, closed]]])
    torch.testing.assert_close(top_softmax(scores, num_kept), torch.tensor([expected]), rtol=0, atol=1e-6)


def test_a_smaller_task_leaves_places_without_a_chance() -> None:
    block = grown(2)
    _, logits = block(GOLDEN["x"], torch.tensor([3, 2]), 1)
    assert (logits.softmax(1)[:, 2] == 0).all()
    assert torch.isfinite(entropies(logits[:, None])).all()
