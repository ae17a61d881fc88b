"""What CLARE promises after every task: disjoint sparse claims, everything else untouched, no trace of Stage 1."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from clare_runs import all_bits, bits, learn, make_clare, mask_of, watch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import evaluate
from clare.methods.protocols import capacity_of
from clare.methods.state import restore, snapshot_of
from clare.sparse import allocator
from clare.sparse.select import budget_of, select_top
from clare.steps import Notice

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def test_every_coordinate_outside_the_tasks_mask_keeps_its_bits(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone())
    moments = watch(method)
    for task in tiny_stream(num_tasks=5).tasks:
        before = method.adapter.values.detach().clone()
        learn(context(train="affine"), method, [task])
        after, mask = method.adapter.values.detach(), mask_of(method, task.index)
        trained = moments[3 * task.index + 1].after["values"]
        assert mask.any()
        assert bits(after[~mask]) == bits(before[~mask])
        # Already while it trained: the merge has nothing to put back.
        assert bits(trained) == bits(after)
        assert float((after != before)[mask].float().mean()) > 0.9


def test_claims_are_disjoint_and_a_fixed_share_of_what_is_free(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    # A small rate keeps the hidden units alive, so that enough coordinates move to fill every budget.
    method = make_clare(tiny_backbone(), sparsity=0.9, learning_rate=0.005)
    num_coordinates = num_free = 440
    for task in tiny_stream(num_tasks=5).tasks:
        learn(context(), method, [task])
        budget = budget_of(num_free, 0.1)
        num_free -= budget
        capacity = capacity_of(method)
        assert capacity is not None
        assert (capacity.num_coordinates, capacity.num_free, capacity.num_claimed) == (
            num_coordinates,
            num_free,
            budget,
        )
        assert abs((1 - num_free / num_coordinates) - (1 - 0.9 ** (task.index + 1))) < 5 / num_coordinates
    claimed = torch.stack([mask_of(method, task) for task in range(5)]).sum(0)
    assert int(claimed.max()) == 1
    assert torch.equal(claimed == 0, method.ledger.free)


def test_the_shared_adapter_is_the_initial_one_and_the_sum_of_all_deltas(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone())
    learn(context(), method, tiny_stream().tasks)
    initial, shared = method.adapter.initial, method.adapter.values.detach()
    merged = initial.clone()
    for task in range(3):
        coordinates, values = method.ledger.claim_of(task)
        assert bits(values) == bits(shared[coordinates])
        merged[coordinates] += values - initial[coordinates]
    torch.testing.assert_close(merged, shared, rtol=1e-6, atol=1e-7)
    assert bits(shared[method.ledger.free]) == bits(initial[method.ledger.free])


def test_stage_two_starts_where_stage_one_did(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone())
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks)
    for probe, train in zip(moments[0::3], moments[1::3], strict=True):
        assert (probe.phase.name, train.phase.name) == ("probe", "train")
        assert bits(probe.before["values"]) != bits(probe.after["values"])
        assert bits(probe.before["block"]) != bits(probe.after["block"])
        assert bits(train.before["values"]) == bits(probe.before["values"])
        assert bits(train.before["block"]) == bits(probe.before["block"])


def test_stage_one_leaves_no_trace_but_the_mask(
    tiny_backbone: MakeBackbone,
    tiny_stream: MakeStream,
    context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def every_fifth(scores: torch.Tensor, candidates: torch.Tensor, budget: int, unmoved: bool) -> torch.Tensor:
        del scores, budget, unmoved
        return candidates & (candidates.cumsum(0) % 5 == 0)

    monkeypatch.setattr(allocator, "select_top", every_fifth)
    short, long = (make_clare(tiny_backbone(), probe_epochs=epochs, penalty_weight=0) for epochs in (1, 3))
    for method in (short, long):
        learn(context(train="affine"), method, tiny_stream().tasks)
    assert all_bits(short) == all_bits(long)


def test_stage_one_moves_free_coordinates_only_and_the_largest_moves_are_chosen(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone())
    moments = watch(method)
    for task in tiny_stream().tasks:
        free = method.ledger.free.clone()
        learn(context(), method, [task])
        probe = moments[3 * task.index]
        assert bits(probe.after["values"][~free]) == bits(probe.before["values"][~free])
        scores = (probe.after["values"] - method.adapter.initial).abs()
        expected = select_top(scores, free, budget_of(int(free.sum()), 0.2))
        assert torch.equal(mask_of(method, task.index), expected)


def test_a_coordinate_that_did_not_move_is_not_chosen(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    """A strong proximal penalty holds most coordinates at their initial values, to the bit."""
    method = make_clare(tiny_backbone(), penalty_weight=0.1, sparsity=0.0)
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks[:1])
    moved = moments[0].after["values"] != method.adapter.initial
    assert 0 < int(moved.sum()) < 200
    assert torch.equal(mask_of(method, 0), moved)


def test_when_nothing_moved_nothing_is_claimed_and_the_head_still_learns(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), penalty_weight=10.0)
    moments = watch(method)
    stream = tiny_stream()
    learn(context(), method, stream.tasks)
    assert method.ledger.lengths == [0, 0, 0]
    assert bits(method.adapter.values) == bits(method.adapter.initial)
    assert bits(moments[1].after["block"]) != bits(moments[1].before["block"])
    assert not any(isinstance(moment.step, Notice) for moment in moments)
    predicted, target, *_ = evaluate(context(), method, stream, 2)
    assert torch.equal(predicted, target)


def test_it_learns_and_old_rows_stay(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, stream = make_clare(tiny_backbone(), learning_rate=0.005), tiny_stream()
    for task in stream.tasks:
        rows = method.head.rows.detach().clone()
        learn(context(), method, [task])
        assert bits(method.head.rows[: len(rows)]) == bits(rows)
        predicted, target, *_ = evaluate(context(), method, stream, task.index)
        assert float((predicted == target).float().mean()) > 0.9
    assert method.classes == list(stream.classes)


def test_the_backbone_is_bit_identical_after_every_task(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone())
    before = {name: bits(tensor) for name, tensor in method.backbone.state_dict().items()}
    for task in tiny_stream().tasks:
        learn(context(), method, [task])
        assert {name: bits(tensor) for name, tensor in method.backbone.state_dict().items()} == before


def test_a_run_is_a_function_of_its_seed(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    def run(seed: int, noise: int) -> dict[str, object]:
        torch.manual_seed(noise)
        method = make_clare(tiny_backbone(), seed=seed)
        learn(context(seed=seed, train="affine"), method, tiny_stream(num_tasks=2).tasks)
        return all_bits(method)

    with torch.random.fork_rng(devices=[]):
        assert run(0, 1) == run(0, 2)
        assert run(0, 1) != run(1, 1)


def test_a_snapshot_brings_everything_back(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    tasks = tiny_stream().tasks
    method, other = make_clare(tiny_backbone()), make_clare(tiny_backbone())
    learn(context(), method, tasks[:2])
    snapshot = snapshot_of(method)
    saved = all_bits(method)
    learn(context(), method, tasks[2:])
    straight = all_bits(method)
    restore(method, snapshot)
    restore(other, replace(snapshot, tensors=dict(snapshot.tensors)))
    assert all_bits(method) == all_bits(other) == saved
    for resumed in (method, other):
        learn(context(), resumed, tasks[2:])
        assert all_bits(resumed) == straight
