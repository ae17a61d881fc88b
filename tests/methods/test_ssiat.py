"""SSIAT's loss and the moves of old classes are those of the authors' code; images are paired with themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import RECIPE, learn, watch
from safetensors.torch import load_file

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.heads.drift import kernel_moves
from clare.methods.ssiat import Ssiat, SsiatSettings

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "ssiat.safetensors")
MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_ssiat(backbone: Backbone, **changes: Any) -> Ssiat:
    values = {**RECIPE, "first_epochs": 3, "head": {"align_epochs": 1, "align_samples": 4}, **changes}
    return Ssiat(backbone, SsiatSettings.model_validate(values), 0)


@pytest.mark.parametrize(("margin", "name"), [(0.3, "loss"), (0.0, "loss0")])
def test_the_loss_is_the_recorded_one(tiny_backbone: MakeBackbone, margin: float, name: str) -> None:
    method = make_ssiat(tiny_backbone(), margin=margin)
    method.head.open_block(3, torch.Generator())
    method.head.block_logits = lambda cosines: 20 * cosines  # type: ignore[method-assign]
    method.features = lambda cosines: cosines  # type: ignore[method-assign, assignment]
    losses = method.loss(GOLDEN["cosines"], GOLDEN["labels"])
    torch.testing.assert_close(losses.mean(), GOLDEN[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("width", [1, 4])
def test_moves_are_the_recorded_ones(width: int) -> None:
    moves = kernel_moves(GOLDEN["before"], GOLDEN["after"], GOLDEN["means"][:2], width)
    torch.testing.assert_close(moves, GOLDEN[f"moves{width}"], rtol=0, atol=1e-5)


def test_old_means_move_as_the_tasks_own_images_did(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    first, second = tiny_stream().tasks[:2]
    found = {}
    for as_published in (False, True):
        method = make_ssiat(tiny_backbone(), as_published=as_published)
        learn(context(), method, [first])
        old = method.head.means.clone()
        images, _ = second.train.batch(torch.arange(len(second.train)))
        seen = context().transforms.test(images)
        before = method.features(seen)
        learn(context(), method, [second])
        moves = kernel_moves(before, method.features(seen), old, 4.0)
        found[as_published] = method.head.means[:2] - old - moves
        assert float(moves.abs().max()) > 1e-3
    torch.testing.assert_close(found[False], torch.zeros_like(found[False]), rtol=0, atol=1e-5)
    # Paired with other images, some count for a class by their place and move it by another's move.
    assert float(found[True].abs().max()) > 1e-6


def test_the_first_task_has_its_own_epochs(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_ssiat(tiny_backbone())
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks[:2])
    steps = [(moment.step.name, getattr(moment.step, "epochs", 0)) for moment in moments]  # type: ignore[union-attr]
    assert steps[0] == ("train", 3)
    assert ("train", 2) in steps[1:]
    assert steps[-1] == ("align", 1)
