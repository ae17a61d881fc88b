"""CODA-Prompt against the recorded official run, its orthogonal starts and frozen components, and its mistakes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from clare_runs import bits, learn
from hypothesis import given
from hypothesis import strategies as st
from prompt_golden import Golden, close, gradients, learning_steps
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.optim import scheduled_rate
from clare.errors import SettingsError
from clare.methods.base import prepare
from clare.methods.coda_prompt import (
    CodaPrompt,
    CodaPromptSettings,
    component_weights,
    distance_from_orthonormal,
    orthonormal_rows,
)
from clare.methods.state import restore, snapshot_of
from clare.steps import Phase, Result, Solve, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

OFFICIAL = {"num_tasks": 2, "num_blocks": 2, "num_components": 8, "prefix_length": 2}
SMALL = {**OFFICIAL, "num_tasks": 3, "num_components": 12, "batch_size": 8, "learning_rate": 0.02, "epochs": 2}
LETTERS = {"keys": "k", "attentions": "a", "prompts": "p"}


def make_coda(backbone: Backbone, **settings: Any) -> CodaPrompt:
    return CodaPrompt(backbone, CodaPromptSettings.model_validate(settings), 0)


def stacked(golden: Golden, name: str, part: str) -> Tensor:
    """Return a part of the components of both blocks, shape (2, components, numbers)."""
    return torch.stack([golden[f"{name}.e_{LETTERS[part]}_{block}"].flatten(1) for block in (0, 1)])


@pytest.mark.parametrize(("prefix", "penalty_weight"), [("", 0.0), ("ortho.", 0.1)])
@torch.no_grad()
def test_the_recorded_official_run(prefix: str, penalty_weight: float) -> None:
    golden = Golden("coda_prompt", prefix, head="last")
    method = make_coda(golden.backbone(), **OFFICIAL, penalty_weight=penalty_weight)
    for task, draws, start in ((0, "init.draw", "init"), (1, "task1.draw", "task1.start")):

        def from_draws(task: int = task, draws: str = draws) -> Result:
            return {
                name: orthonormal_rows(part.data[:, : 4 * task], stacked(golden, draws, name))
                for name, part in method.components().items()
            }

        for name, phase, images, labels in learning_steps(method, golden, task, rate=0.01, solve=from_draws):
            assert phase.clip_norm is None
            check_prefixes(method, golden, name, images)
            check_penalty(method, golden, name)
            if name.endswith("step0"):
                found = gradients(phase, images, labels)
                for part, gradient in zip(LETTERS, found, strict=False):
                    close(method.components()[part], stacked(golden, start, part))
                    close(gradient, stacked(golden, f"{name}.grad", part))
                close(found[3], golden.rows(f"{name}.grad", task))
        for part, values in method.components().items():
            close(values, stacked(golden, f"task{task}.after", part))
        close(method.head.rows, golden.rows(f"task{task}.after")[: 3 * (task + 1)])
        check_prefixes(method, golden, f"task{task}.test", golden.images("test"))
        close(method(golden.images("test")), golden[f"task{task}.test.logits"])


def check_prefixes(method: CodaPrompt, golden: Golden, name: str, images: Tensor) -> None:
    """Compare query, weights and, where recorded, keys and values of both blocks."""
    queries = method.queries(images)
    close(queries, golden[f"{name}.query"])
    weights = component_weights(queries, method.attentions, method.keys)
    prefixes = method.prefixes_of(weights @ method.prompts)
    for block in (0, 1):
        recorded = golden[f"{name}.block{block}.alpha"]
        close(weights[block][:, : recorded.shape[1]], recorded)
        assert not weights[block][:, recorded.shape[1] :].any()
        if not golden.prefix:
            close(prefixes[block][0], golden[f"{name}.block{block}.prefix_key"])
            close(prefixes[block][1], golden[f"{name}.block{block}.prefix_value"])


def check_penalty(method: CodaPrompt, golden: Golden, name: str) -> None:
    """Compare the penalty with the recorded one."""
    if golden.prefix:
        in_use = torch.arange(8) < 4 * (int(method.slot) + 1)
        parts = [distance_from_orthonormal(part, in_use) for part in method.components().values()]
        close(torch.stack(parts, 1), golden[f"{name}.penalty"])
        close(method.penalty(), golden[f"{name}.prompt_loss"][0])


@pytest.mark.parametrize("epochs", [5, 20])
def test_the_recorded_schedule(epochs: int) -> None:
    rates = [scheduled_rate(0.001, CodaPromptSettings().schedule, epoch, epochs) for epoch in range(epochs)]
    torch.testing.assert_close(torch.tensor(rates), Golden("coda_prompt")[f"schedule.cosine{epochs}"].float())


@given(num_old=st.integers(0, 4), num_new=st.integers(1, 4), size=st.integers(8, 30), seed=st.integers(0, 1000))
def test_fresh_rows_are_orthonormal_and_orthogonal_to_orthogonal_old_ones(
    num_old: int, num_new: int, size: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Old rows of any length, orthogonal to each other: then one pass of projections leaves nothing.
    old = torch.linalg.qr(torch.randn(2, size, num_old, generator=generator, dtype=torch.float64)).Q.mT
    old = old * torch.rand(2, num_old, 1, generator=generator, dtype=torch.float64).add(0.5)
    fresh = orthonormal_rows(old, torch.randn(2, num_new, size, generator=generator, dtype=torch.float64))
    identity = torch.eye(num_new, dtype=torch.float64).expand(2, -1, -1)
    torch.testing.assert_close(fresh @ fresh.mT, identity, atol=1e-7, rtol=0)
    torch.testing.assert_close(fresh @ old.mT, torch.zeros(2, num_new, num_old, dtype=torch.float64), atol=1e-7, rtol=0)


def test_gram_schmidt_by_hand() -> None:
    """(3, 4, 5) less its share of (2, 0, 0) is (0, 4, 5); (0, 0, 1) less its shares of both is (0, -20, 16) / 41."""
    fresh = orthonormal_rows(torch.tensor([[[2.0, 0, 0]]]), torch.tensor([[[3.0, 4, 5], [0, 0, 1]]]))
    expected = torch.tensor([[[0, 4, 5], [0, -5, 4]]]) / 41**0.5
    torch.testing.assert_close(fresh, expected)
    # An old row that training made zero takes nothing away.
    assert orthonormal_rows(torch.zeros(1, 1, 2), torch.tensor([[[0.0, 5.0]]])).tolist() == [[[0, 1]]]


def test_component_weights_by_hand() -> None:
    """(1, 2) attended by (3, 1) is (3, 2): its cosine with (0, 5) is 2 / sqrt(13)."""
    attentions, keys = torch.tensor([[[3.0, 1], [0, 0]]]), torch.tensor([[[0.0, 5], [0, 0]]])
    weights = component_weights(torch.tensor([[1.0, 2]]), attentions, keys)
    torch.testing.assert_close(weights, torch.tensor([[[2 / 13**0.5, 0]]]))


def test_the_penalty_by_hand_leaves_out_components_to_come() -> None:
    """Rows (1, 0) and (1, 1) have products 1, 1, 1, 2: the squares of 0, 1, 1, 1 have the mean 3 / 4."""
    rows, in_use = torch.tensor([[[1.0, 0], [1, 1], [7, 7]]]), torch.tensor([True, True, False])
    assert distance_from_orthonormal(rows, in_use).tolist() == [0.75]


@torch.no_grad()
def test_components_start_orthogonal_and_old_ones_stay_to_the_bit(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_coda(tiny_backbone(), **SMALL, penalty_weight=0.1, clip_norm=1.0)
    for task in tiny_stream().tasks:
        first, last = 4 * task.index, 4 * task.index + 4
        fresh = fresh_components(method, task.index, task.classes)
        # Trained old components are no longer orthogonal to each other, and one pass of projections feels that.
        tolerance = 1e-5 if task.index == 0 else 0.05
        for part in fresh.values():
            torch.testing.assert_close(part.norm(dim=2), torch.ones(2, 4))
            torch.testing.assert_close(part @ part.mT, torch.eye(4).expand(2, 4, 4), atol=tolerance, rtol=0)
        before = {name: part.detach().clone() for name, part in method.components().items()}
        learn(context(), method, [task])
        for name, part in method.components().items():
            assert bits(part[:, :first]) == bits(before[name][:, :first])
            assert not part[:, last:].any()
            assert bool((part[:, first:last] != fresh[name]).any(2).all())


def fresh_components(method: CodaPrompt, index: int, classes: tuple[str, ...]) -> Result:
    """Return the components that a task would start from, and leave the method as it was."""
    before = snapshot_of(method)
    learning = method.learn(TaskInfo(index, classes))
    step = next(learning)
    assert isinstance(step, Solve)
    fresh = step.function()
    assert isinstance(learning.send(fresh), Phase)
    for name, part in method.components().items():
        assert torch.equal(part[:, 4 * index : 4 * index + 4], fresh[name])
    restore(method, before)
    return fresh


def test_components_are_orthogonal_to_those_of_a_task_that_training_did_not_move(tiny_backbone: MakeBackbone) -> None:
    method = make_coda(tiny_backbone(), **SMALL)
    with torch.no_grad():
        first = fresh_components(method, 0, ("a",))
        for name, part in method.components().items():
            part[:, :4] = first[name]
        method.tasks.append(("a",))
        method.head.append(torch.zeros(1, 25))
        second = fresh_components(method, 1, ("b",))
    for name in first:
        torch.testing.assert_close(first[name] @ second[name].mT, torch.zeros(2, 4, 4), atol=1e-5, rtol=0)


def test_gradients_are_finite_and_belong_to_the_task_alone(tiny_backbone: MakeBackbone) -> None:
    method = make_coda(tiny_backbone(), **SMALL, penalty_weight=0.1)
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for index in (0, 1):
            learning = method.learn(TaskInfo(index, ("a", "b")))
            step = next(learning)
            assert isinstance(step, Solve)
            phase = learning.send(step.function())
            assert isinstance(phase, Phase)
            method.tasks.append((f"{index}",))
        for group in phase.groups:
            group.parameter.requires_grad_(True)
        for gradient in gradients(phase, images, torch.tensor([0, 1, 1, 0]))[:3]:
            assert bool(gradient.isfinite().all())
            assert gradient.abs().sum((0, 2)).nonzero().flatten().tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"`method\.num_blocks` asks for 5 blocks, but the backbone has 2; lower it"),
        ({"num_blocks": 2}, r"`method\.num_components` is 100, but only 24 directions .* 24 or less"),
        (
            {"num_blocks": 2, "num_components": 2, "num_tasks": 3},
            r"`method\.num_components` is 2, but there are 3 tasks.* set it to 3 or more",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tiny_backbone: MakeBackbone, settings: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_coda(tiny_backbone(), **settings)


def test_components_are_shared_among_the_tasks_of_the_stream(tiny_backbone: MakeBackbone) -> None:
    method = make_coda(tiny_backbone(), num_blocks=2, num_components=10, prefix_length=3)
    with pytest.raises(SettingsError, match=r"coda-prompt keeps a slot for every task.*`method\.num_tasks`"):
        prepare(method, None, 2)
    prepare(method, 3, 2)
    assert method.per_task == 3
    assert method.keys.shape == method.attentions.shape == (2, 9, 24)
    assert method.prompts.shape == (2, 9, 2 * 3 * 24)
    with pytest.raises(SettingsError, match=r"there are 11 tasks"):
        make_coda(tiny_backbone(), num_blocks=2, num_components=10).prepare(11, 2)
