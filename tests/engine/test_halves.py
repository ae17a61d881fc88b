"""Steps that each half of the classes takes where the other half's gradient leads."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from clare.engine.optim import rate_at
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import Halves, TrainStep
from clare.heads.head import margin_logits
from clare.steps import Agreement, Group, Phase, Sgd

RANKS = Ranks(EngineSettings(device="cpu"))
GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "loda.safetensors")


def fixed(halves: Halves | None, keys: Tensor, length: float) -> None:
    """Set what would be drawn."""
    assert halves is not None
    halves.keys.copy_(keys)
    halves.length.fill_(length)


def test_two_halves_by_hand() -> None:
    x = nn.Parameter(torch.zeros(1, 1))
    losses = (lambda: 0.5 * (x - 1).square().sum(), lambda: (x + 1).square().sum())

    def loss(_: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([losses[label]() for label in labels.tolist()])

    phase = Phase("train", 1, [Group(x)], loss, Sgd(0.1, 0.0), 2, agreement=Agreement(1.0, (x,), 2))
    step = TrainStep(RANKS, phase)
    step.optimizer.set_rate(0.1)
    fixed(step.halves, torch.tensor([0.0, 1.0]), 0.15)
    # Two samples of the second class and a padded one: their mean counts.
    step(torch.zeros(4, 1), torch.tensor([0, 1, 1, 0]), torch.tensor([1.0, 1.0, 1.0, 0.0]), 3)
    # Along the first loss to 0.15, where the second's gradient is 2.3; then along the second's to -0.38.
    assert x.item() == pytest.approx(-0.092, abs=1e-6)


def test_recorded_steps_with_momentum_decay_and_a_batch_of_one_class() -> None:
    start = {name: GOLDEN[f"gao.start.{name}"] for name in ("lora_A", "lora_B", "fc")}
    down, up = (nn.Parameter(start[name][None].clone()) for name in ("lora_A", "lora_B"))
    rows = nn.Parameter(start["fc"].clone())

    def loss(inputs: Tensor, labels: Tensor) -> Tensor:
        features = inputs + torch.tanh(inputs @ down[0]) @ up[0]
        cosines = F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T
        return F.cross_entropy(margin_logits(20 * cosines, labels, 20 * 0.1), labels, reduction="none")

    optimizer = Sgd(0.05, 0.9, 5e-4)
    groups = [Group(down), Group(up), Group(rows)]
    step = TrainStep(RANKS, Phase("train", 3, groups, loss, optimizer, 12, agreement=Agreement(0.3, (down, up), 4)))
    lengths = iter(GOLDEN["gao.rand"].tolist())
    orders = iter(GOLDEN["gao.perms"])
    for epoch in range(3):
        step.optimizer.set_rate(rate_at(optimizer, epoch, 3))
        for inputs, labels in zip(GOLDEN["gao.inputs"], GOLDEN["gao.labels"], strict=True):
            classes = labels.unique()
            order = next(orders)
            keys = torch.zeros(4)
            keys[classes[order[order >= 0]]] = torch.arange(len(classes), dtype=torch.float32)
            fixed(step.halves, keys, 0.3 * next(lengths) if len(classes) > 1 else 0.3)
            step(inputs, labels, torch.ones(12), 12)
    for name, parameter in (("lora_A", down[0]), ("lora_B", up[0]), ("fc", rows)):
        torch.testing.assert_close(parameter.detach(), GOLDEN[f"gao.end.{name}"], rtol=0, atol=1e-5)


def test_what_is_drawn_depends_on_the_generator_alone() -> None:
    parameter = nn.Parameter(torch.zeros(1, 1))
    one, other = (Halves(Agreement(0.5, (parameter,), 6), [parameter]) for _ in range(2))
    for halves in (one, other):
        halves.draw(torch.Generator().manual_seed(3))
    assert torch.equal(one.keys, other.keys)
    assert 0 < float(one.length) == float(other.length) < 0.5
    (first, _), (second, _), is_split = one.split(torch.arange(5), torch.ones(5), RANKS)
    assert (int(first.sum()), int(second.sum()), bool(is_split)) == (2, 3, True)
