"""Each variant of CLARE differs from the method in what it says and in nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from clare_runs import Moment, all_bits, bits, learn, make_clare, mask_of, watch
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods.clare import Clare
from clare.sparse.select import select_top
from clare.steps import Phase

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

PROBE = {
    "name": "probe",
    "epochs": 2,
    "mask": "free",
    "penalty": "l1-proximal 0.0001",
    "decay": "initial",
    "rows": True,
}
TRAIN = {"name": "train", "epochs": 2, "mask": "chosen", "penalty": None, "decay": "zero", "rows": True}
STATISTICS = {"name": "statistics"}


def describe(method: Clare, moment: Moment, free: Tensor, chosen: Tensor) -> dict[str, Any]:
    """Say in words what a step trains, and how."""
    if not isinstance(moment.step, Phase):
        return {"name": moment.step.name}  # type: ignore[union-attr]
    phase = moment.step
    adapter, *others = phase.groups
    assert adapter.parameter is method.adapter.values
    assert all(group.parameter is method.head.block and group.mask is None for group in others)
    assert adapter.mask is not None
    masks = {"all": torch.ones_like(free), "free": free, "chosen": chosen}
    penalty, towards = adapter.penalty, adapter.decay_towards
    assert penalty is None or torch.equal(penalty.anchor, method.adapter.initial)
    assert towards is None or torch.equal(towards, method.adapter.initial)
    return {
        "name": phase.name,
        "epochs": phase.epochs,
        "mask": next(name for name in masks if torch.equal(adapter.mask, masks[name])),
        "penalty": None if penalty is None else f"{penalty.form} {penalty.weight}",
        "decay": "zero" if towards is None else "initial",
        "rows": len(others) == 1,
    }


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, [PROBE, TRAIN, STATISTICS]),
        ({"capacity_aware": False}, [{**PROBE, "mask": "all"}, TRAIN, STATISTICS]),
        ({"two_stage": False}, [{**TRAIN, "mask": "free"}, STATISTICS]),
        ({"two_stage": False, "capacity_aware": False}, [{**TRAIN, "mask": "all"}, STATISTICS]),
        ({"mask": "none"}, [{**TRAIN, "mask": "all"}, STATISTICS]),
        ({"mask": "random"}, [TRAIN, STATISTICS]),
        ({"start": "initial"}, [PROBE, TRAIN, STATISTICS]),
        ({"merge": "literal"}, [PROBE, TRAIN, STATISTICS]),
        ({"penalty": "l2"}, [{**PROBE, "penalty": "l2 0.0001"}, TRAIN, STATISTICS]),
        ({"penalty": "l1-subgradient"}, [{**PROBE, "penalty": "l1-subgradient 0.0001"}, TRAIN, STATISTICS]),
        ({"penalty": "transformed-l1"}, [{**PROBE, "penalty": "transformed-l1 0.0001"}, TRAIN, STATISTICS]),
        ({"penalty": "group-lasso"}, [{**PROBE, "penalty": "group-lasso 0.0001"}, TRAIN, STATISTICS]),
        ({"penalty_weight": 1e-3}, [{**PROBE, "penalty": "l1-proximal 0.001"}, TRAIN, STATISTICS]),
        ({"probe_epochs": 1}, [{**PROBE, "epochs": 1}, TRAIN, STATISTICS]),
        ({"epochs": 1}, [PROBE, {**TRAIN, "epochs": 1}, STATISTICS]),
        ({"probe_decay": "zero"}, [{**PROBE, "decay": "zero"}, TRAIN, STATISTICS]),
        ({"probe_head": "keep"}, [PROBE, TRAIN, STATISTICS]),
        ({"probe_head": "frozen"}, [{**PROBE, "rows": False}, TRAIN, STATISTICS]),
        ({"head": {"kind": "trained"}}, [PROBE, TRAIN]),
    ],
    ids=lambda value: ", ".join(f"{key} {choice}" for key, choice in value.items()) if isinstance(value, dict) else "",
)
def test_the_steps_of_a_variant(
    tiny_backbone: MakeBackbone,
    tiny_stream: MakeStream,
    context: MakeContext,
    changes: dict[str, Any],
    steps: list[dict[str, Any]],
) -> None:
    first, second = tiny_stream(num_tasks=2).tasks
    method = make_clare(tiny_backbone(), **changes)
    learn(context(), method, [first])
    free = method.ledger.free.clone()
    moments = watch(method)
    learn(context(), method, [second])
    chosen = mask_of(method, 1)
    assert [describe(method, moment, free, chosen) for moment in moments] == steps
    optimizers = {moment.step.optimizer for moment in moments if isinstance(moment.step, Phase)}
    assert {(sgd.learning_rate, sgd.momentum, sgd.weight_decay) for sgd in optimizers} == {(0.05, 0.9, 5e-2)}


def test_a_random_mask_has_as_many_free_coordinates_as_the_learnt_one(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    random, learnt = make_clare(tiny_backbone(), mask="random"), make_clare(tiny_backbone())
    for method in (random, learnt):
        learn(context(), method, tiny_stream().tasks)
    assert random.ledger.lengths == learnt.ledger.lengths
    masks = torch.stack([mask_of(random, task) for task in range(3)])
    assert int(masks.sum(0).max()) == 1
    assert not torch.equal(masks[0], mask_of(learnt, 0))
    again = make_clare(tiny_backbone(), seed=1, mask="random")
    learn(context(), again, tiny_stream().tasks[:1])
    assert not torch.equal(mask_of(again, 0), masks[0])


def test_no_mask_trains_and_claims_everything_each_time(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), seed=3, mask="none")
    for task in tiny_stream(num_tasks=2).tasks:
        before = method.adapter.values.detach().clone()
        learn(context(), method, [task])
        assert float((method.adapter.values != before).float().mean()) > 0.95
    assert method.ledger.lengths == [440, 440]
    assert method.ledger.num_free == 0


def test_without_capacity_every_task_takes_a_constant_share_and_may_overlap(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), capacity_aware=False, constant_share=0.3)
    for task in tiny_stream().tasks:
        before = method.adapter.values.detach().clone()
        learn(context(), method, [task])
        mask = mask_of(method, task.index)
        assert int(mask.sum()) == round(0.3 * 440)
        assert bits(method.adapter.values[~mask]) == bits(before[~mask])
    claimed = torch.stack([mask_of(method, task) for task in range(3)]).sum(0)
    assert int(claimed.max()) > 1
    assert method.ledger.num_free == int((claimed == 0).sum())


def test_one_stage_keeps_the_largest_changes_as_training_left_them(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), two_stage=False)
    moments = watch(method)
    for task in tiny_stream().tasks:
        free, before = method.ledger.free.clone(), method.adapter.values.detach().clone()
        learn(context(), method, [task])
        trained = moments[2 * task.index].after["values"]
        budget = round(0.2 * int(free.sum()))
        mask = select_top((trained - method.adapter.initial).abs(), free, budget)
        assert torch.equal(mask_of(method, task.index), mask)
        assert bits(method.adapter.values) == bits(torch.where(mask, trained, before))


def test_independent_tasks_start_at_the_initial_values_and_are_merged(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, shared = make_clare(tiny_backbone(), start="initial"), make_clare(tiny_backbone())
    moments = watch(method)
    learn(context(), shared, tiny_stream().tasks)
    for task in tiny_stream().tasks:
        before = method.adapter.values.detach().clone()
        learn(context(), method, [task])
        probe, train, statistics = moments[3 * task.index : 3 * task.index + 3]
        assert bits(probe.before["values"]) == bits(method.adapter.initial)
        assert bits(train.before["values"]) == bits(method.adapter.initial)
        mask = mask_of(method, task.index)
        assert not (mask & (before != method.adapter.initial)).any()
        merged = torch.where(mask, train.after["values"], before)
        assert bits(method.adapter.values) == bits(merged)
        # The class means are those of the merged adapter.
        assert bits(statistics.before["values"]) == bits(merged)
    assert bits(method.ledger.claim_of(0)[1]) == bits(shared.ledger.claim_of(0)[1])
    assert bits(method.adapter.values) != bits(shared.adapter.values)


def test_adding_deltas_is_keeping_the_state_where_masks_are_disjoint(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    state, literal = make_clare(tiny_backbone()), make_clare(tiny_backbone(), merge="literal")
    for method in (state, literal):
        learn(context(), method, tiny_stream().tasks)
    for task in range(3):
        assert torch.equal(mask_of(literal, task), mask_of(state, task))
    torch.testing.assert_close(literal.adapter.values, state.adapter.values, rtol=1e-4, atol=1e-5)


def test_adding_deltas_counts_twice_where_masks_overlap(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    literal = make_clare(tiny_backbone(), merge="literal", mask="none")
    moments = watch(literal)
    learn(context(), literal, tiny_stream(num_tasks=2).tasks)
    first, second = (moment.after["values"] for moment in moments if isinstance(moment.step, Phase))
    initial = literal.adapter.initial
    torch.testing.assert_close(literal.adapter.values.detach(), initial + (first - initial) + (second - initial))
    # Against the trained state, what the first task did is there twice.
    torch.testing.assert_close(literal.adapter.values - second, first - initial, rtol=1e-4, atol=1e-6)
    assert float((first - initial).abs().max()) > 0.01
    assert bits(literal.ledger.claim_of(1)[1]) == bits(literal.adapter.values)


def test_the_penalty_shapes_the_scores(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    moved = {}
    for penalty in ("l1-proximal", "l1-subgradient", "l2"):
        method = make_clare(tiny_backbone(), penalty=penalty, penalty_weight=0.05)
        moments = watch(method)
        learn(context(), method, tiny_stream().tasks[:1])
        moved[penalty] = (moments[0].after["values"] - method.adapter.initial).abs()
    num_moved = {penalty: int((scores > 0).sum()) for penalty, scores in moved.items()}
    assert num_moved["l1-proximal"] < 200 < min(num_moved["l1-subgradient"], num_moved["l2"])
    assert not torch.equal(moved["l1-subgradient"], moved["l2"])


def test_group_lasso_leaves_whole_hidden_units_where_they_were(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), penalty="group-lasso", penalty_weight=0.08)
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks[:1])
    movement = moments[0].after["values"] - method.adapter.initial
    sizes, has_moved = method.adapter.unit_norms(movement), movement != 0
    assert bool((sizes[has_moved] > 0).all())
    assert 0 < int((sizes == 0).sum()) < len(sizes)
    # A unit's norm is that of its row, its bias and its column.
    down, bias, up, _ = torch.split(movement[:220], [96, 4, 96, 24])
    unit = torch.cat([down.view(4, 24)[1], bias[1:2], up.view(24, 4)[:, 1]])
    torch.testing.assert_close(sizes[24:48], unit.norm().expand(24))


def test_gates_shut_under_a_strong_penalty_and_leave_no_trace(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    lengths = []
    for weight in (1e-4, 10.0):
        method = make_clare(tiny_backbone(), penalty="l0", penalty_weight=weight, sparsity=0.0)
        learn(context(), method, tiny_stream(num_tasks=2).tasks)
        assert not any("gates" in name for name in method.state_dict())
        lengths.append(method.ledger.lengths[0])
        again = make_clare(tiny_backbone(), penalty="l0", penalty_weight=weight, sparsity=0.0)
        learn(context(), again, tiny_stream(num_tasks=2).tasks)
        assert all_bits(again) == all_bits(method)
    assert lengths[1] < lengths[0]


@pytest.mark.parametrize("probe_head", ["copy", "keep", "frozen"])
def test_rows_between_the_stages(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, probe_head: str
) -> None:
    method = make_clare(tiny_backbone(), probe_head=probe_head)
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks)
    for probe, train in zip(moments[0::3], moments[1::3], strict=True):
        assert (bits(probe.after["block"]) == bits(probe.before["block"])) == (probe_head == "frozen")
        expected = probe.after if probe_head == "keep" else probe.before
        assert bits(train.before["block"]) == bits(expected["block"])
        assert bits(train.after["block"]) != bits(train.before["block"])
        assert bits(train.before["values"]) == bits(probe.before["values"])


def test_decay_moves_what_no_gradient_reaches_unless_it_pulls_to_the_initial_values(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    """In a probe of one step the down-projections get no gradient, since the up-projections are still zero."""
    for decay, factor in (("initial", 1.0), ("zero", 1 - 0.05 * 5e-2)):
        method = make_clare(tiny_backbone(), probe_decay=decay, penalty_weight=0.0, probe_epochs=1, batch_size=24)
        moments = watch(method)
        learn(context(), method, tiny_stream().tasks[:1])
        down = moments[0].after["values"].view(2, -1)[:, : 4 * 24]
        torch.testing.assert_close(down, factor * method.adapter.initial.view(2, -1)[:, : 4 * 24], rtol=1e-6, atol=0)
        up = moments[0].after["values"].view(2, -1)[:, 4 * 24 + 4 :]
        assert bool(up.any(1).all())
