"""LoDA's directions, merged weights and sums of moments are those of the authors' attention layer."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods.loda import Loda, LodaSettings, exclusive, kept_shares, leading
from clare.steps import TaskInfo

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "loda.safetensors")
OLD = torch.tensor([[4, 1, 0], [1, 2, 0], [0, 0, 0.5]], dtype=torch.float64)
NEW = torch.tensor([[3, 0, 0], [0, 1, 0.5], [0, 0.5, 2]], dtype=torch.float64)


def moment(name: str) -> Tensor:
    """Return the mean second moment of recorded inputs."""
    tokens = GOLDEN[name].flatten(0, 1).double()
    return tokens.T @ tokens / len(tokens)


def projector(rows: Tensor) -> Tensor:
    """Return what does not depend on the signs of directions."""
    return torch.einsum("rd,re->rde", rows.double(), rows.double())


def test_two_recorded_tasks() -> None:
    old = torch.zeros(8, 8, dtype=torch.float64)
    weight = GOLDEN["weight"]
    for task in (0, 1):
        before = moment(f"{task}.before")
        shared = leading(old + before, 2)
        torch.testing.assert_close(projector(shared), projector(GOLDEN[f"{task}.general"]), rtol=0, atol=1e-5)
        down = GOLDEN["0.general_trained" if task == 0 else "1.general"]
        update = 0.25 * GOLDEN[f"{task}.up_general"]
        trained = moment(f"{task}.trained")
        kept = kept_shares(down[None], old[None], trained[None], 3.0)[0].to(update)
        assert (kept == 1).all() == (task == 0)
        weight = weight + (update * kept) @ down
        if task == 1:
            own = exclusive(old, before, 2)
            torch.testing.assert_close(projector(own), projector(GOLDEN["1.isolated"]), rtol=0, atol=1e-5)
            weight = weight + 0.5 * GOLDEN["1.up_isolated"] @ GOLDEN["1.isolated"]
        torch.testing.assert_close(weight, GOLDEN[f"{task}.weight"], rtol=0, atol=1e-5)
        # As published, the sum takes the task's moments in twice.
        old = old + trained + moment(f"{task}.merged")
        torch.testing.assert_close(old.float(), GOLDEN[f"{task}.moments"], rtol=1e-5, atol=1e-4)


def test_directions_by_hand() -> None:
    general = torch.tensor([[0.972341, 0.232277, 0.024508]], dtype=torch.float64)
    torch.testing.assert_close(3 * projector(leading(OLD + NEW, 1)), projector(general), rtol=0, atol=1e-5)
    own = torch.tensor([[-0.025772, 0.084158, 0.996119]], dtype=torch.float64)
    torch.testing.assert_close(3 * projector(exclusive(OLD, NEW, 1)), projector(own), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("times", "weight", "expected"), [(1, 3.0, 0.666876), (2, 3.0, 0.500235), (1, 1.0, 0.400226)])
def test_kept_shares_by_hand(times: int, weight: float, expected: float) -> None:
    shares = kept_shares(leading(OLD + NEW, 1)[None], times * OLD[None], NEW[None], weight)
    assert float(shares) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("as_published", [False, True])
def test_moments_count_once_unless_as_published(tiny_backbone: Callable[..., Backbone], as_published: bool) -> None:
    method = Loda(tiny_backbone(), LodaSettings(rank=2, as_published=as_published), 0)
    learning = method.learn(TaskInfo(0, ("a", "b")))
    identity = torch.eye(24, dtype=torch.float64).repeat(2, 1, 1)
    found = {"moments": 6 * identity, "count": torch.tensor(2.0, dtype=torch.float64)}
    with torch.no_grad():
        next(learning)
        solve = learning.send(found)
        phase = learning.send(solve.function())  # type: ignore[union-attr]
        names = [id(group.parameter) for group in phase.groups]  # type: ignore[union-attr]
        assert names == [id(method.lora.down), id(method.lora.up), id(method.head.block)]
        learning.send({})
        learning.send(found)
        with pytest.raises(StopIteration):
            learning.send(found)
    torch.testing.assert_close(method.moments, (6.0 if as_published else 3.0) * identity)
