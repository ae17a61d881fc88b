"""TUNA merges adapters and adds up answers as its text says, or as the authors' code does."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import RECIPE, learn
from realign_golden import realigned
from safetensors.torch import load_file

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods._shared.task_adapters import TASK_HEAD
from clare.methods.tuna import Tuna, TunaSettings, overlap, unified
from clare.testing.world import tiny_backbone as make_backbone

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "tuna.safetensors")
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_tuna(backbone: Backbone, **changes: Any) -> Tuna:
    values = {**RECIPE, "head": {"align_epochs": 1, "align_samples": 4}, **changes}
    return Tuna(backbone, TunaSettings.model_validate(values), 0)


def test_three_adapters_are_merged_as_recorded() -> None:
    torch.testing.assert_close(unified(GOLDEN["adapters"]), GOLDEN["merged"], rtol=0, atol=1e-5)


def test_a_merger_by_hand() -> None:
    adapters = torch.tensor([[0.3, -0.2, 0, 0.5], [0.1, 0.4, -0.1, -0.6], [-0.2, 0.1, 0.3, 0]])
    torch.testing.assert_close(unified(adapters), torch.tensor([0.3, 0.4, 0.3, -0.6]))


def test_what_an_adapter_shares_with_earlier_ones_is_as_recorded() -> None:
    method = make_tuna(make_backbone(embed_dim=6, depth=12, num_heads=1), adapter={"bottleneck": 3})
    newest, earlier = (method._directions(part) for part in (GOLDEN["adapters"][2:], GOLDEN["adapters"][:2]))
    torch.testing.assert_close(overlap(newest, earlier), GOLDEN["orthogonality"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("as_published", [False, True])
def test_answers_are_the_recorded_ones(as_published: bool) -> None:
    method = make_tuna(make_backbone(embed_dim=4, num_heads=1), as_published=as_published)
    method.head.append(GOLDEN["answer_rows"])
    parts = GOLDEN["answer_features"]
    # The released code takes the last of the three adapters for the merged one.
    universal = parts[2] if as_published else parts[3]
    logits = method.classify(torch.cat([universal, *parts[:3]], 1))
    sums = GOLDEN["answer_published" if as_published else "answer_merged"]
    torch.testing.assert_close(2 * (20 * logits).exp(), sums, rtol=0, atol=1e-5)


def test_an_answer_by_hand() -> None:
    # On unit vectors as rows, features of length one are their own cosines but for a rest.
    cosines = torch.tensor([[0.6, 0.55, 0.1], [0.5, 0.45, 0.1], [0.2, 0.7, 0.1]])
    rest = (1 - cosines.square().sum(1, keepdim=True)).sqrt()
    method = make_tuna(make_backbone(embed_dim=4, num_heads=1))
    method.head.append(torch.eye(3, 4))
    logits = method.classify(torch.cat([cosines, rest], 1).flatten()[None])
    expected = torch.tensor([0.731080, 1.268881, 0.000039])
    torch.testing.assert_close(2 * (20 * logits[0]).exp(), expected, rtol=0, atol=1e-6)


def test_rows_are_trained_again_as_recorded() -> None:
    changes = {"align_epochs": 8, "align_samples": 20, "align_learning_rate": 0.05}
    settings = TASK_HEAD.model_copy(update={**changes, "align_turn": 5, "align_decay": "newer"})
    rows = realigned(settings, GOLDEN)
    assert float((rows - GOLDEN["start"]).abs().max()) > 0.05
    torch.testing.assert_close(rows, GOLDEN["aligned"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("as_published", [False, True])
def test_a_task_goes_on_from_the_last_ones_adapter(
    tiny_stream: MakeStream, context: MakeContext, as_published: bool
) -> None:
    method = make_tuna(make_backbone(), orthogonality=1.0, as_published=as_published)
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    tasks = tiny_stream().tasks
    learn(context(), method, tasks[:1])
    assert (method.num_passes, method.features(images).shape) == (1, (3, 24))
    first, starts = method.adapters.current.clone(), []
    begin = method.begin
    method.begin = lambda task: (begin(task), starts.append(method.adapters.current.clone()))  # type: ignore
    learn(context(), method, tasks[1:2])
    assert torch.equal(starts[0], first)
    assert torch.equal(method.adapters.kept[0], first)
    assert not torch.equal(method.adapters.current, first)
    torch.testing.assert_close(method.merged, unified(method.adapters.values))
    universal, *parts = method.features(images).split(24, dim=1)
    assert method.num_passes == 3
    newest = method.task_features(images)
    torch.testing.assert_close(parts[1], newest)
    assert torch.allclose(universal, newest, atol=1e-5) == as_published


def test_the_loss_has_a_margin_and_what_adapters_share(tiny_stream: MakeStream, context: MakeContext) -> None:
    images, labels = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1])
    losses = {}
    for margin, weight in ((0.0, 0.0), (0.0, 0.5), (0.3, 0.0)):
        method = make_tuna(make_backbone(), margin=margin, orthogonality=weight)
        method.adapters.draw(torch.Generator().manual_seed(1))
        method.adapters.current.data.add_(0.01)
        method.adapters.keep()
        method.head.open_block(2, torch.Generator().manual_seed(2))
        losses[margin, weight] = method.loss(images, labels)
    # All rows of the up-projections are alike, so that they share one.
    added = losses[0.0, 0.5] - losses[0.0, 0.0]
    torch.testing.assert_close(added, torch.full((4,), 0.5 * math.exp(-2)), rtol=1e-3, atol=0)
    assert bool((losses[0.3, 0.0] > losses[0.0, 0.0]).all())
