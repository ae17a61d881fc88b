"""MoAL memorises and ruminates as the authors' code, and keeps a slow average of its adapter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import RECIPE, learn, watch
from safetensors.torch import load_file
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods.moal import FIRST_SHARE, Moal, MoalHead, MoalHeadSettings, MoalSettings, ruminated

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "moal.safetensors")
MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_moal(backbone: Backbone, **changes: Any) -> Moal:
    return Moal(backbone, MoalSettings.model_validate({**RECIPE, "head": {"num_projected": 32}, **changes}), 0)


def solved(head: MoalHead) -> Tensor:
    """Make the rows anew, and return them."""
    head.replace(head.solve_at(float(GOLDEN["ridge"]))[0])
    return head.rows.data


def test_two_recorded_tasks() -> None:
    head = MoalHeadSettings(num_projected=12).make(5, 0)
    head.projection.copy_(GOLDEN["projection"])
    assert head.choose_ridge(GOLDEN["x0"], GOLDEN["y0"], 2) == float(GOLDEN["ridge"])
    head.add(GOLDEN["x0"], GOLDEN["y0"], 2)
    head.sums.mul_(FIRST_SHARE)
    torch.testing.assert_close(solved(head), GOLDEN["rows0"], rtol=0, atol=1e-5)
    head.add(GOLDEN["x1"], GOLDEN["y1"] - 2, 2)
    torch.testing.assert_close(solved(head), GOLDEN["rows1"], rtol=0, atol=1e-5)
    pseudo, labels = ruminated(GOLDEN["x1"], GOLDEN["y1"], GOLDEN["means"], 2)
    old = GOLDEN["pseudo_labels"] < 2
    torch.testing.assert_close(pseudo, GOLDEN["pseudo"][old], rtol=0, atol=1e-5)
    assert torch.equal(labels, GOLDEN["pseudo_labels"][old])
    is_mistaken = head.logits(GOLDEN["pseudo"]).argmax(1) != GOLDEN["pseudo_labels"]
    assert 0 < int(is_mistaken.sum()) < len(is_mistaken)
    head.show(GOLDEN["pseudo"][is_mistaken], GOLDEN["pseudo_labels"][is_mistaken])
    torch.testing.assert_close(solved(head), GOLDEN["rows2"], rtol=0, atol=1e-5)


def test_a_regression_by_hand() -> None:
    head = MoalHeadSettings(num_projected=3).make(3, 0)
    head.projection.copy_(torch.eye(3))
    head.add(torch.tensor([[1.0, 0, 2], [0, 1, 1], [2, 1, 0]]), torch.tensor([0, 1, 0]), 2)
    first = torch.tensor([[0.504065, -0.081301, 0.195122], [-0.260163, 0.536585, 0.178862]])
    torch.testing.assert_close(head.solve_at(0.5)[0], first, rtol=0, atol=1e-6)
    head.add(torch.tensor([[1.0, 1, 1], [0, 2, 1]]), torch.tensor([0, 0]), 1)
    second = torch.tensor(
        [[0.449339, -0.129641, 0.156073], [-0.105727, 0.114537, 0.114537], [-0.061674, 0.376337, 0.090623]]
    )
    torch.testing.assert_close(head.solve_at(0.5)[0], second, rtol=0, atol=1e-6)


def test_rumination_by_hand() -> None:
    means = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    features, labels = torch.tensor([[0.9, 0.5], [5.0, 5.0], [0.7, 0.7]]), torch.tensor([1, 2, 1])
    pseudo, classes = ruminated(features, labels, means, 1)
    torch.testing.assert_close(pseudo, torch.tensor([[1.1, -0.1], [0.9, 0.1]]))
    assert classes.tolist() == [0, 0]


def test_of_a_later_task_the_adapter_takes_a_little_with_every_epoch(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_moal(tiny_backbone(), keep=0.75, epochs=1)
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks[:2])
    first, second = (moment for moment in moments if getattr(moment.step, "name", "") == "train")
    assert first.phase.averages == ()
    start, end = second.before["values"], second.after["values"]
    torch.testing.assert_close(method.adapter.values.data, start.lerp(end, 0.25))
    assert not torch.equal(start, end)


@pytest.mark.parametrize("as_published", [False, True])
def test_only_as_published_the_first_task_counts_less(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, as_published: bool
) -> None:
    method = make_moal(tiny_backbone(), as_published=as_published)
    learn(context(), method, tiny_stream().tasks[:1])
    images, labels = tiny_stream().tasks[0].train.batch(torch.arange(24))
    head = MoalHeadSettings(num_projected=32).make(24, 0)
    head.add(method.features(context().transforms.test(images)), labels, 2)
    share = FIRST_SHARE if as_published else 1.0
    torch.testing.assert_close(method.head.sums, share * head.sums, rtol=1e-4, atol=1e-5)
