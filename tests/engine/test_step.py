"""One training step: masks and momenta of its phase, padding without weight."""

import pytest
import torch
from torch import nn

from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.steps import Group, Penalty, Phase, Pull, Sgd


def test_a_step_begins_with_the_masks_of_its_phase_and_fresh_momenta() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    anchor = torch.zeros(3)

    def phase(*mask: bool) -> Phase:
        group = Group(parameter, torch.tensor(mask), Penalty(0.0, "l1-subgradient", anchor))
        return Phase("train", 1, [group], lambda inputs, _: -(inputs * parameter).sum(1), Sgd(1.0), 2)

    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase(True, False, False))
    step.optimizer.set_rate(1.0)
    batch = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), torch.ones(2), 2
    step(*batch)
    assert parameter.tolist() == [1, 0, 0]
    step.begin(phase(False, True, False))
    step(*batch)
    assert parameter.tolist() == [1, 1, 0]
    assert step.optimizer.state["momentum.0"].tolist() == [-1, -1, -1]
    assert float(step.total) == pytest.approx(-2.0)


def test_padding_weighs_nothing() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    phase = Phase("train", 1, [Group(parameter)], lambda inputs, _: -(inputs * parameter).sum(1), Sgd(1.0), 4)
    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
    step.optimizer.set_rate(1.0)
    step(torch.tensor([[1.0], [3.0], [100.0]]), torch.zeros(3, dtype=torch.int64), torch.tensor([1.0, 1.0, 0.0]), 2)
    assert parameter.tolist() == [2.0]


def test_a_loss_that_couples_samples_knows_which_are_padding() -> None:
    parameter, seen = nn.Parameter(torch.zeros(1)), []

    def loss(inputs: torch.Tensor, _: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        seen.append(weights)
        return -((inputs * weights[:, None]).sum() * parameter).expand(len(inputs))

    phase = Phase("train", 1, [Group(parameter)], loss, Sgd(1.0), 4, couples=True)
    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
    step.optimizer.set_rate(1.0)
    weights = torch.tensor([1.0, 1.0, 0.0])
    step(torch.tensor([[1.0], [3.0], [100.0]]), torch.zeros(3, dtype=torch.int64), weights, 2)
    assert parameter.tolist() == [4.0]
    assert torch.equal(seen[0], weights)


def test_gradients_have_a_place_for_each_number() -> None:
    parameter = nn.Parameter(torch.ones(3))
    phase = Phase("train", 1, [Group(parameter)], lambda inputs, _: inputs[:, 0] * parameter.sum(), Sgd(1.0), 2)
    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
    (gradient,), _ = step._gradients(torch.ones(2, 1), torch.zeros(2, dtype=torch.int64), torch.ones(2), 0.5)
    assert gradient.is_contiguous()
    assert gradient.tolist() == [1, 1, 1]


def test_a_pull_comes_before_the_step() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    group = Group(parameter, pull=Pull(0.75, torch.zeros(1)))
    phase = Phase("train", 1, [group], lambda inputs, _: (inputs * parameter).square().sum(1), Sgd(1.0, 0.0), 1)
    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
    step.optimizer.set_rate(0.25)
    step(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), torch.ones(1), 1)
    # Pulled to 0.25, where the gradient is 0.5.
    assert parameter.tolist() == [0.125]
