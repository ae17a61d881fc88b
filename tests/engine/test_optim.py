"""The masked optimiser against torch's own, and against what it must not touch."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from clare.engine.optim import MaskedOptimizer, clip_gradients, rate_at, scheduled_rate, steepest
from clare.errors import SettingsError
from clare.sparse.update import PROXIMAL, PenaltyForm
from clare.steps import Adam, Group, Optimizer, Penalty, Sgd, Steepest

RATES = [0.1, 0.1, 0.07, 0.02, 0.005]


def bits(tensor: Tensor) -> list[int]:
    numbers: list[int] = tensor.detach().contiguous().view(torch.int32).tolist()
    return numbers


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def take_step(optimizer: MaskedOptimizer, rate: float, gradients: list[Tensor]) -> None:
    optimizer.set_rate(rate)
    optimizer.step([gradient.clone() for gradient in gradients])


def one_step(start: Tensor, gradient: Tensor, rate: float, sgd: Sgd, **group: Any) -> Tensor:
    """Return where one step leads."""
    parameter = nn.Parameter(start.clone())
    take_step(MaskedOptimizer([Group(parameter, **group)], sgd), rate, [gradient])
    return parameter.detach()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 5e-2])
def test_inside_the_mask_it_is_torch_sgd(momentum: float, weight_decay: float) -> None:
    start, mask = draw(50, seed=0), draw(50, seed=1) > 0
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer = MaskedOptimizer([Group(ours, mask=mask)], Sgd(0.1, momentum, weight_decay))
    reference = torch.optim.SGD([theirs], lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for step, rate in enumerate(RATES):
        gradient = draw(50, seed=10 + step)
        take_step(optimizer, rate, [gradient])
        theirs.grad = gradient.clone()
        reference.param_groups[0]["lr"] = rate
        reference.step()
        torch.testing.assert_close(ours[mask], theirs[mask], rtol=1e-6, atol=1e-6)
    assert bits(ours[~mask]) == bits(start[~mask])


@pytest.mark.parametrize("weight_decay", [0.0, 5e-2])
def test_inside_the_mask_it_is_torch_adam(weight_decay: float) -> None:
    start, mask = draw(50, seed=0), draw(50, seed=1) > 0
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer = MaskedOptimizer([Group(ours, mask=mask)], Adam(0.1, (0.8, 0.99), 1e-6, weight_decay))
    reference = torch.optim.Adam([theirs], lr=0.1, betas=(0.8, 0.99), eps=1e-6, weight_decay=weight_decay)
    for step, rate in enumerate(RATES):
        gradient = draw(50, seed=10 + step)
        take_step(optimizer, rate, [gradient])
        theirs.grad = gradient.clone()
        reference.param_groups[0]["lr"] = rate
        reference.step()
        torch.testing.assert_close(ours[mask], theirs[mask], rtol=1e-5, atol=1e-5)
    assert bits(ours[~mask]) == bits(start[~mask])
    optimizer.reset()
    assert all(not tensor.any() for tensor in optimizer.state.values())


@pytest.mark.parametrize("form", PROXIMAL)
def test_adam_refuses_a_proximal_penalty(form: PenaltyForm) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    group = Group(parameter, penalty=Penalty(0.1, form, torch.zeros(2)))
    with pytest.raises(SettingsError, match=r"Adam .* proximal penalty; use l1-subgradient"):
        MaskedOptimizer([group], Adam(0.1))


def test_a_group_may_have_a_share_of_the_rate() -> None:
    start, gradient = draw(5, seed=0), draw(5, seed=1)
    slow = one_step(start, gradient, 0.1, Sgd(0.1, 0.0), rate_factor=0.5)
    torch.testing.assert_close(slow, one_step(start, gradient, 0.05, Sgd(0.05, 0.0)))


@pytest.mark.parametrize("norm", [0.5, 100.0])
def test_clipping_is_torchs(norm: float) -> None:
    parameters = [nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(2, 3))]
    gradients = [draw(4, seed=0), draw(2, 3, seed=1)]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_(parameters, norm)
    for parameter, clipped in zip(parameters, clip_gradients(gradients, norm), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(clipped, parameter.grad)


def test_without_a_mask_every_coordinate_moves() -> None:
    start = draw(20, seed=0)
    moved = one_step(start, draw(20, seed=1), 0.1, Sgd(0.1))
    assert bool((moved != start).all())


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    form=st.sampled_from([None, "l1-proximal", "l1-subgradient", "l2"]),
    towards_anchor=st.booleans(),
    poison=st.sampled_from([0.0, math.nan, math.inf, -math.inf]),
)
def test_outside_the_mask_nothing_ever_moves(
    seed: int, form: PenaltyForm | None, towards_anchor: bool, poison: float
) -> None:
    start, anchor, mask = draw(30, seed=seed), draw(30, seed=seed + 1), draw(30, seed=seed + 2) > 0
    parameter = nn.Parameter(start.clone())
    penalty = None if form is None else Penalty(0.1, form, anchor)
    group = Group(parameter, mask, penalty, anchor if towards_anchor else None)
    optimizer = MaskedOptimizer([group], Sgd(0.1, 0.9, 5e-2))
    for step, rate in enumerate(RATES):
        gradient = torch.where(mask, draw(30, seed=seed + step), poison)
        take_step(optimizer, rate, [gradient])
    assert bits(parameter[~mask]) == bits(start[~mask])
    assert bool(torch.isfinite(parameter).all())
    assert not mask.any() or bits(parameter[mask]) != bits(start[mask])


@pytest.mark.parametrize("form", ["l1-subgradient", "l2"])
def test_a_penalty_in_the_gradient_is_autograd_of_the_penalised_loss(form: PenaltyForm) -> None:
    matrix, anchor = draw(12, 8, seed=0, dtype=torch.float64), draw(8, seed=1, dtype=torch.float64)
    start, weight = draw(8, seed=2, dtype=torch.float64), 0.3
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer = MaskedOptimizer([Group(ours, penalty=Penalty(weight, form, anchor))], Sgd(0.01, 0.9, 1e-2))
    optimizer.rate = optimizer.rate.double()
    reference = torch.optim.SGD([theirs], lr=0.01, momentum=0.9, weight_decay=1e-2)
    for rate in (0.01, 0.01, 0.004):
        (gradient,) = torch.autograd.grad((matrix @ ours).square().sum(), ours)
        take_step(optimizer, rate, [gradient])
        offset = theirs - anchor
        penalty = offset.abs().sum() if form == "l1-subgradient" else offset.square().sum()
        reference.zero_grad()
        ((matrix @ theirs).square().sum() + weight * penalty).backward()  # type: ignore[no-untyped-call]
        reference.param_groups[0]["lr"] = rate
        reference.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=100)
@given(
    anchor=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8),
    momentum=st.sampled_from([0.0, 0.9]),
    weight=st.sampled_from([0.0, 1e-4, 1.0]),
)
def test_proximal_coordinates_without_a_gradient_stay_at_the_anchor_to_the_bit(
    anchor: list[float], momentum: float, weight: float
) -> None:
    initial = torch.tensor(anchor)
    parameter = nn.Parameter(initial.clone())
    group = Group(parameter, penalty=Penalty(weight, "l1-proximal", initial), decay_towards=initial)
    optimizer = MaskedOptimizer([group], Sgd(0.1, momentum, 5e-2))
    for rate in RATES:
        take_step(optimizer, rate, [torch.zeros(len(anchor))])
    assert bits(parameter) == bits(initial)


def test_the_proximal_threshold_is_the_long_run_pull_of_the_subgradient() -> None:
    rate, weight, momentum = 0.5, 0.2, 0.75
    threshold = 0.5 * 0.2 / 0.25
    anchor = torch.tensor([1.0, 1.0, 1.0, 1.0])
    # One plain step of -rate * gradient: offsets of +1, -1, just within and just beyond the threshold.
    offsets = torch.tensor([1.0, -1.0, 0.99 * threshold, -1.01 * threshold])
    moved = one_step(anchor, -offsets / rate, rate, Sgd(rate, momentum), penalty=Penalty(weight, "l1-proximal", anchor))
    expected = [1 + (1 - threshold), 1 - (1 - threshold), 1.0, 1 - 0.01 * threshold]
    torch.testing.assert_close(moved, torch.tensor(expected))
    assert float(moved[2]) == 1.0


def test_the_proximal_step_matches_the_subgradient_in_the_long_run() -> None:
    anchor, gradient = torch.zeros(1), torch.tensor([-1.0])
    ends = []
    for form in ("l1-proximal", "l1-subgradient"):
        parameter = nn.Parameter(torch.zeros(1))
        group = Group(parameter, penalty=Penalty(0.25, form, anchor))
        optimizer = MaskedOptimizer([group], Sgd(0.01, 0.9))
        for _ in range(400):
            take_step(optimizer, 0.01, [gradient])
        ends.append(float(parameter.detach()))
    # Both drift by rate * (1 - 0.25) / (1 - momentum) a step once the momentum has built up.
    assert ends[0] == pytest.approx(ends[1], rel=0.03)
    assert ends[1] == pytest.approx(400 * 0.01 * 0.75 / 0.1, rel=0.03)


def test_decay_pulls_towards_zero_or_towards_the_given_values() -> None:
    start, towards, still = torch.tensor([2.0, -1.0]), torch.tensor([3.0, -1.0]), torch.zeros(2)
    sgd = Sgd(0.5, 0.0, 0.1)
    assert one_step(start, still, 0.5, sgd).tolist() == pytest.approx([2 - 0.5 * 0.1 * 2, -1 + 0.5 * 0.1])
    moved = one_step(start, still, 0.5, sgd, decay_towards=towards)
    assert moved.tolist() == pytest.approx([2 + 0.5 * 0.1 * 1, -1.0])
    assert float(moved[1]) == -1.0


@pytest.mark.parametrize("optimizer", [Sgd(0.1, 0.9, 1e-2), Adam(0.1, weight_decay=1e-2)], ids=["sgd", "adam"])
def test_a_saved_state_goes_on_to_the_bit(optimizer: Optimizer) -> None:
    def make(start: Tensor, other: Tensor) -> MaskedOptimizer:
        groups = [Group(nn.Parameter(start.clone()), mask=draw(9, seed=3) > 0), Group(nn.Parameter(other.clone()))]
        return MaskedOptimizer(groups, optimizer)

    straight = make(draw(9, seed=0), draw(2, 3, seed=1))
    gradients = [[draw(9, seed=20 + step), draw(2, 3, seed=30 + step)] for step in range(len(RATES))]
    for rate, gradient in zip(RATES[:3], gradients[:3], strict=True):
        take_step(straight, rate, gradient)
    resumed = make(*(group.parameter.detach() for group in straight.groups))
    resumed.restore({name: tensor.clone() for name, tensor in straight.state.items()})
    for rate, gradient in zip(RATES[3:], gradients[3:], strict=True):
        take_step(straight, rate, gradient)
        take_step(resumed, rate, gradient)
    for one, other in zip(straight.groups, resumed.groups, strict=True):
        assert bits(one.parameter) == bits(other.parameter)


def test_the_rate_is_written_into_one_tensor() -> None:
    optimizer = MaskedOptimizer([Group(nn.Parameter(torch.zeros(2)))], Sgd(0.1))
    place = optimizer.rate.data_ptr()
    optimizer.set_rate(0.25)
    assert optimizer.rate.data_ptr() == place
    assert float(optimizer.rate) == 0.25


@pytest.mark.parametrize(
    ("epoch", "epochs", "expected"), [(0, 20, 0.02), (10, 20, 0.01), (1, 3, 0.015), (2, 3, 0.005), (0, 1, 0.02)]
)
def test_cosine_rates_by_hand(epoch: int, epochs: int, expected: float) -> None:
    assert scheduled_rate(0.02, "cosine", epoch, epochs) == pytest.approx(expected)


def test_the_cosine_schedule_falls_to_zero_only_after_the_last_epoch() -> None:
    rates = [scheduled_rate(0.1, "cosine", epoch, 7) for epoch in range(8)]
    assert rates == sorted(rates, reverse=True)
    assert rates[6] > 0
    assert rates[7] == pytest.approx(0, abs=1e-15)


def test_the_other_schedules_by_hand() -> None:
    assert [scheduled_rate(0.1, "constant", epoch, 3) for epoch in range(3)] == [0.1, 0.1, 0.1]
    rates = [scheduled_rate(1.0, "quarter-cosine", epoch, 20) for epoch in range(20)]
    assert rates[:2] == [1.0, 1.0]
    assert rates[10] == pytest.approx(math.cos(99 * math.pi * 9 / (200 * 19)))
    assert rates[-1] == pytest.approx(0.097, abs=1e-3)
    assert scheduled_rate(0.3, "quarter-cosine", 0, 1) == 0.3


def test_a_rate_falls_at_milestones_and_to_a_floor() -> None:
    steps = Sgd(1.0, schedule="constant", milestones=(2, 3))
    assert [rate_at(steps, epoch, 5) for epoch in range(5)] == pytest.approx([1, 1, 0.1, 0.01, 0.01])
    floor = Sgd(1.0, least_rate=0.5)
    assert [rate_at(floor, epoch, 2) for epoch in range(3)] == pytest.approx([1, 0.75, 0.5])


def test_a_cosine_can_rise_again() -> None:
    rates = [rate_at(Sgd(0.005, turn=5), epoch, 30) for epoch in range(11)]
    expected = [0.005, 0.00452, 0.00327, 0.00173, 0.00048, 0, 0.00048, 0.00173, 0.00327, 0.00452, 0.005]
    assert rates == pytest.approx(expected, abs=1e-5)


def test_a_schedule_goes_on_over_phases() -> None:
    whole = [rate_at(Sgd(0.03), epoch, 6) for epoch in range(6)]
    parts = [rate_at(Sgd(0.03, start=start, turn=6), epoch, 2) for start in (0, 2, 4) for epoch in range(2)]
    assert parts == whole


def test_the_steepest_numbers_by_hand() -> None:
    gradient = torch.tensor([0.1, 1, 0, 0, 0, 0.05, 3, 0])
    assert steepest(gradient, Steepest(0.2, 1, (8,))).int().tolist() == [0, 1, 0, 0, 0, 0, 1, 0]
    # Each layer has its own; where more than the rest is zero, nothing that is zero moves.
    assert steepest(-gradient, Steepest(0.5, 1, (2, 6))).int().tolist() == [0, 1, 0, 0, 0, 1, 1, 0]


def test_what_moves_is_chosen_every_so_many_steps_inside_the_mask() -> None:
    parameter, mask = nn.Parameter(torch.zeros(4)), torch.tensor([True, True, True, False])
    group = Group(parameter, mask=mask, steepest=Steepest(0.5, 2, (4,)))
    optimizer = MaskedOptimizer([group], Sgd(1, momentum=0))
    optimizer.set_rate(1)
    found = []
    for gradient in ([1.0, 2, 3, 9], [8, 1, 1, 9], [8, 1, 1, 9]):
        optimizer.step([torch.tensor(gradient)])
        found.append(parameter.tolist())
    # The quantile of (1, 2, 3, 0) is between 1 and 2; that of (8, 1, 1, 0) is 1.
    assert found == [[0, -2, -3, 0], [0, -3, -4, 0], [-8, -3, -4, 0]]


def test_a_rate_warms_up_step_by_step() -> None:
    adam = Adam(1.0, schedule="cosine-steps", warm_up=4)
    # Three epochs of four steps: the first warms up, the cosine has the other two.
    rates = [rate_at(adam, step / 4, 3, 4) for step in range(12)]
    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert rates[8] == pytest.approx(0.5)


def test_decoupled_decay_is_that_of_torch() -> None:
    ours, theirs = (nn.Parameter(draw(50, seed=0)) for _ in range(2))
    optimizer = MaskedOptimizer([Group(ours)], Adam(0.1, weight_decay=0.1, decoupled=True))
    reference = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1)
    for step, rate in enumerate(RATES):
        gradient = draw(50, seed=10 + step)
        take_step(optimizer, rate, [gradient])
        theirs.grad = gradient.clone()
        reference.param_groups[0]["lr"] = rate
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
