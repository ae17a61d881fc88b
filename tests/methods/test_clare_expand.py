"""A pool that never runs dry: fresh adapters beside full ones, or a wider one; frozen stays frozen all the same."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from clare_runs import bits, learn, make_clare, mask_of, watch

from clare.backbones.vit import Backbone
from clare.classifier.capacity import tasks_left
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.presets.schema import Experiment
from clare.testing import promises
from clare.testing.promises import Promise
from clare.testing.world import Case

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]
WAYS = pytest.mark.parametrize("expand", ["fresh", "wider"])


@WAYS
def test_shapes_change_at_an_expansion_alone_and_what_is_claimed_keeps_its_bits(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, expand: str
) -> None:
    method = make_clare(tiny_backbone(), expand=expand, sparsity=0.7, learning_rate=0.005, penalty_weight=0)
    moments, widths = watch(method), []
    for task in tiny_stream(num_tasks=6).tasks:
        claimed = [method.ledger.claim_of(earlier) for earlier in range(task.index)]
        size, free, first = method.adapter.values.numel(), method.ledger.num_free, len(moments)
        learn(context(train="affine"), method, [task])
        names = [getattr(moment.step, "name", "notice") for moment in moments[first:]]
        is_low = free < 220
        assert names == [*(["notice"] if is_low else []), "probe", "train", "statistics"]
        assert (method.adapter.values.numel() > size) == is_low
        widths.append(sum(method.adapter.bottlenecks))
        for coordinates, values in claimed:
            assert bits(method.adapter.values[coordinates]) == bits(values)
        mask = mask_of(method, task.index)
        assert not mask[:size].any() or not (is_low and expand == "fresh")
        assert int(mask.sum()) >= round(0.3 * 220) - 1
        assert bits(method.adapter.values[method.ledger.free]) == bits(method.adapter.initial[method.ledger.free])
        assert sum(method.diagnosis()["claimed_per_block"]) == int(mask.sum())
        assert method.diagnosis()["coordinates_per_block"] == method.adapter.values.numel() // 2
    # 440, 308 and 216 coordinates are free before the first three tasks; wider adapters keep what is left of them.
    assert widths == ([4, 4, 8, 8, 12, 12] if expand == "fresh" else [4, 4, 7, 7, 7, 10])
    overlap = torch.stack([mask_of(method, task) for task in range(6)]).sum(0)
    assert int(overlap.max()) == 1
    assert tasks_left(method) is None


@pytest.mark.slow
@pytest.mark.parametrize(("expand", "mask"), [("fresh", "learnt"), ("fresh", "random"), ("wider", "random")])
def test_every_one_of_three_hundred_tasks_gets_its_coordinates(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, expand: str, mask: str
) -> None:
    """A learnt mask takes what moves, and free coordinates of a wider pool may be of units that answer to nothing."""
    changes = {"sparsity": 0.9, "penalty_weight": 0, "learning_rate": 0.005, "epochs": 1, "adapter": {"bottleneck": 16}}
    method = make_clare(tiny_backbone(), expand=expand, mask=mask, **changes)
    learn(context(), method, tiny_stream(num_tasks=300, num_train=3, num_test=1).tasks)
    budgets = method.ledger.lengths
    assert len(budgets) == 300
    assert min(budgets[99:]) >= median(budgets[:50]) / 2
    assert sum(budgets) > 5 * sum(method.adapter.block_sizes[: method.adapter.num_blocks])


class Expanding(Case):
    """A method whose pool is expanded before the third task at the latest."""

    def experiment(self, *overrides: str, seed: int | None = None) -> Experiment:
        """Return a run with expansions."""
        return super().experiment(
            "method.expand=wider", "method.sparsity=0.3", "method.penalty_weight=0", *overrides, seed=seed
        )


class Refreshing(Expanding):
    """The same with fresh adapters."""

    def experiment(self, *overrides: str, seed: int | None = None) -> Experiment:
        """Return a run with expansions."""
        return super().experiment("method.expand=fresh", *overrides, seed=seed)


@pytest.mark.parametrize("world", [Expanding, Refreshing])
@pytest.mark.parametrize("name", ["clare", "clare-plus"])
@pytest.mark.parametrize(
    "promise",
    [
        promises.a_loaded_model_answers_as_the_saved_one,
        promises.a_snapshot_brings_everything_back,
        promises.a_stopped_run_goes_on_as_if_it_had_not_stopped,
        promises.frozen_stays_frozen,
        promises.a_phase_changes_nothing_but_its_groups,
        promises.a_task_that_is_cut_off_leaves_the_method_as_it_was,
    ],
    ids=lambda value: value.__name__,
)
def test_promises_hold_with_expansions(
    tiny_preset: Path, tmp_path: Path, world: type[Case], name: str, promise: Promise
) -> None:
    case = world(name, "aligned", tiny_preset, tmp_path)
    promise(case)
    method: Any = case.learn(case.method(), 0, 1, 2)
    assert len(method.adapter.bottlenecks) > 1


def test_features_are_held_to_those_of_before_a_wider_adapter(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, tiny_preset: Path, tmp_path: Path
) -> None:
    case = Expanding("clare-plus", "aligned", tiny_preset, tmp_path)
    method: Any = case.learn(case.method("method.hold=1.0", "method.budget=auto", "method.penalty=l0"), 0, 1, 2)
    assert len(method.anchor) == len(method.gates.mask) == len(method.adapter.values)
