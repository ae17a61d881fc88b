"""MOS pulls, tells apart and asks in rounds as the authors' code does; by default it pulls once."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import RECIPE, learn, phases_of
from realign_golden import realigned
from safetensors.torch import load_file

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods.mos import MOS_HEAD, Mos, MosSettings, apartness
from clare.testing.world import tiny_backbone as make_backbone

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "mos.safetensors")
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_mos(backbone: Backbone, **changes: Any) -> Mos:
    values = {**RECIPE, "head": {"align_epochs": 1, "align_samples": 4}, **changes}
    return Mos(backbone, MosSettings.model_validate(values), 0)


@pytest.mark.parametrize(("as_published", "name"), [(False, "pulled_once"), (True, "pulled_by_a_step")])
def test_an_adapter_is_pulled_as_recorded(as_published: bool, name: str) -> None:
    method = make_mos(make_backbone(), as_published=as_published)
    pulled = GOLDEN["start"].lerp(GOLDEN["earlier"].mean(0), method.pull_share)
    torch.testing.assert_close(pulled, GOLDEN[name], rtol=0, atol=1e-5)


def test_pulls_by_hand() -> None:
    # Of twelve blocks, a forward pass leaves .9 ** 12 of what an adapter has of its own, and a step .9 of that.
    backbone = make_backbone(depth=12)
    assert 1 - make_mos(backbone).pull_share == pytest.approx(0.9)
    assert 1 - make_mos(make_backbone(depth=12), as_published=True).pull_share == pytest.approx(
        0.9 * 0.282430, abs=1e-6
    )


def test_what_tells_samples_apart_is_the_recorded_one() -> None:
    features, means = GOLDEN["contrast_features"], GOLDEN["contrast_means"]
    for known, name in ((means[:0], "contrast_first"), (means, "contrast_later")):
        shares = apartness(features, known, torch.ones(5))
        torch.testing.assert_close(0.1 * shares.mean(), GOLDEN[name], rtol=0, atol=1e-5)


def test_apartness_by_hand_and_padding_that_counts_nowhere() -> None:
    features, means = torch.tensor([[1.0, 1.0], [0.5, 0.0]]), torch.eye(2)
    whole = apartness(features, means, torch.ones(2))
    assert float(whole.mean()) == pytest.approx(1.006198, abs=1e-6)
    padded = apartness(torch.cat([features, features[:1]]), means, torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(padded[:2], whole)
    assert bool(padded.isfinite().all())


def test_answers_are_the_recorded_ones() -> None:
    method = make_mos(make_backbone(embed_dim=4, num_heads=1))
    method.tasks = [("a", "b"), ("c", "d"), ("e", "f")]
    method.head.append(GOLDEN["answer_rows"])
    method.prototypes = GOLDEN["answer_prototypes"]
    chances = method.classify(GOLDEN["answer_features"].transpose(0, 1).flatten(1)).exp()
    torch.testing.assert_close(2 * chances, GOLDEN["answer"], rtol=0, atol=1e-5)


def test_rows_are_trained_again_as_recorded() -> None:
    changes = {"align_epochs": 6, "align_samples": 20, "align_learning_rate": 0.05, "align_diagonal": True}
    rows = realigned(MOS_HEAD.model_copy(update=changes), GOLDEN, "start_rows")
    assert float((rows - GOLDEN["start_rows"]).abs().max()) > 0.05
    torch.testing.assert_close(rows, GOLDEN["aligned"], rtol=0, atol=1e-5)


def test_a_task_is_pulled_towards_those_before(tiny_stream: MakeStream, context: MakeContext) -> None:
    tasks = tiny_stream().tasks
    apart = {}
    for pull in (0.0, 0.5):
        method = make_mos(make_backbone(), pull=pull, learning_rate=0.02)
        phases = phases_of(method)
        learn(context(), method, tasks)
        trained = [phase for phase in phases if phase.name == "train"]
        assert all(phase.couples for phase in trained)
        assert [phase.groups[1].rate_factor for phase in trained] == [0.1, 0.1, 0.1]
        assert trained[0].groups[0].pull is None
        if pull:
            assert trained[2].groups[0].pull is not None
            torch.testing.assert_close(trained[2].groups[0].pull.anchor, method.adapters.kept.mean(0))
        apart[pull] = float((method.adapters.current - method.adapters.kept.mean(0)).norm())
    assert apart[0.5] < 0.9 * apart[0.0]


def test_what_it_keeps_of_classes_is_under_the_first_adapter(tiny_stream: MakeStream, context: MakeContext) -> None:
    method = make_mos(make_backbone())
    tasks = tiny_stream().tasks[:2]
    learn(context(), method, tasks)
    images, labels = tasks[1].train.batch(torch.arange(len(tasks[1].train)))
    features = method.features(context().transforms.test(images))
    means = torch.stack([features[labels == label].mean(0) for label in (0, 1)])
    torch.testing.assert_close(method.prototypes[2:], means[:, :24], rtol=0, atol=1e-5)
    torch.testing.assert_close(method.head.means[2:], means[:, 24:], rtol=0, atol=1e-5)
    assert method.num_parts == method.num_passes == 2
    torch.testing.assert_close(method.later_parts(context().transforms.test(images), 1), features[:, 24:])
    chances = method(context().transforms.test(images)).exp()
    torch.testing.assert_close(chances.sum(1), torch.ones(len(chances)), rtol=0, atol=1e-5)
    assert math.isfinite(float(chances.log().sum()))
