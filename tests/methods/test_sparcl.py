"""SparCL: importance, masks, growth, removals and slopes worked out by hand, and one network that stays sparse."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.drive import Driver
from clare.engine.learn import learn_task
from clare.engine.optim import steepest
from clare.methods.sparcl import SparclSettings, SparseContinualLearning, easiest, regrown, shares_at
from clare.steps import Pass, Phase, Result, Steepest, Step

Make = Callable[..., Any]
WEIGHTS = torch.tensor([0.5, -0.1, 0, 0.3, 0.2, -0.4, 0, 0.05])
SLOPES = torch.tensor([0.1, 1, 0.2, 0, -0.1, 0.05, 3, 0])
IMPORTANCE = WEIGHTS.abs() + 0.5 * SLOPES.abs()


def test_a_mask_by_hand() -> None:
    assert IMPORTANCE.tolist() == pytest.approx([0.55, 0.6, 0.1, 0.3, 0.25, 0.425, 1.5, 0.05])
    mask = regrown(0.5, 0.5, IMPORTANCE, torch.zeros(8))
    assert mask.int().tolist() == [1, 1, 0, 0, 0, 1, 1, 0]
    assert (WEIGHTS * mask).tolist() == pytest.approx([0.5, -0.1, 0, 0, 0, -0.4, 0, 0])
    # The authors' code would now lose the number before the last, which is zero by then.
    assert int((WEIGHTS * mask).count_nonzero()) == 3


def test_growth_by_hand() -> None:
    draw = torch.tensor([0.9, 0.9, 0.1, 0.8, 0.7, 0.9, 0.9, 0.3])
    assert regrown(0.5, 0.25, IMPORTANCE, draw).int().tolist() == [1, 1, 0, 1, 1, 1, 1, 0]
    # Where nothing is known yet, chance alone decides; equal shares let nothing grow.
    assert regrown(0.75, 0.5, torch.zeros(8), draw).int().tolist() == [1, 1, 0, 0, 0, 1, 1, 0]
    assert not regrown(0.75, 0.75, torch.zeros(8), draw).any()


def test_a_tasks_schedule_by_hand() -> None:
    found = [share for epoch in (0, 5, 44, 45, 49) for share in shares_at(epoch / 50, 0.75, 0.01)]
    assert found == pytest.approx([0.75, 0.74, 0.76, 0.75, 0.76, 0.75, 0.75, 0.75, 0.75, 0.75])


def test_slopes_that_move_by_hand() -> None:
    mask = torch.tensor([1, 1, 0, 0, 0, 1, 1, 0])
    assert steepest(SLOPES * mask, Steepest(0.2, 30, (8,))).int().tolist() == [0, 1, 0, 0, 0, 0, 1, 0]


def test_the_easiest_images_by_hand() -> None:
    # Never forgotten, forgotten twice, never right, forgotten once, learnt at last, never forgotten.
    epochs = [[1, 1, 0, 1, 0, 1], [1, 0, 0, 1, 0, 1], [1, 1, 0, 0, 0, 1], [1, 0, 0, 1, 1, 1]]
    is_right = torch.tensor(epochs, dtype=torch.bool)
    assert [easiest(is_right, number).nonzero().flatten().tolist() for number in (0, 2, 4, 5)] == [
        [],
        [0, 4],
        [0, 3, 4, 5],
        [0, 1, 3, 4, 5],
    ]


def make(backbone: Backbone, **settings: Any) -> SparseContinualLearning:
    """Return a small sparse learner."""
    values = {"epochs": 4, "every": 1, "batch_size": 8, "memory": {"pictures": 8}, **settings}
    return SparseContinualLearning(backbone, SparclSettings(**values), 0)


def test_one_network_stays_sparse_and_easy_images_go(
    tiny_backbone: Make, tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    method = make(tiny_backbone(), sparsity=0.6, exchange=0.1, left_out=0.5, left_out_by=0.5)
    stream, run = tiny_stream(), context()
    for task in stream.tasks:
        sizes, driver = [], Driver(run, method, task.train, task.index)

        def watched(step: Step, place: Any, driver: Driver = driver, sizes: list[int] = sizes) -> Result:
            found = driver.perform(step, place)
            if isinstance(step, Phase):
                assert step.groups[0].mask is not None
                moved = method.values != method.start
                assert not moved[~step.groups[0].mask].any()
                sizes.append(found["remarks"].shape[1])
            return found

        learn_task(run, method, task, perform=watched)
        # Twenty-four images, of which half are gone after two of four epochs.
        assert sizes == [24, 18, 12, 12]
        for mask, is_matrix in zip(torch.split(method.mask, method.layer_sizes), method.is_matrix, strict=True):
            share = float(mask.float().mean())
            assert share == pytest.approx(0.4, abs=2 / len(mask)) if is_matrix else share == 1
    assert (method.values != method.start).any()


def test_the_loss_and_its_slopes_by_hand(
    tiny_backbone: Make, tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run = tiny_stream(), context()
    method = make(tiny_backbone(), alpha=0.3, beta=0.7, epochs=1)
    learn_task(run, method, stream.tasks[0])
    method.head.open_block(2, torch.Generator().manual_seed(0))
    method.contrast.take(method.head)
    canvas, _ = stream.tasks[1].train.batch(torch.tensor([0, 20, 5]))
    own = run.transforms.test(canvas)
    images = (method.kept[0].pixels.view(-1, 1, 28, 28) / 255 - 0.5) / 0.5
    batch = torch.stack([own, images[[3, 5, 2]], images[[1, 7, 2]]], 1)
    labels = torch.tensor([[0, 3, 1], [1, 5, 7], [1, 2, 2]])
    losses, is_right = method.judged(batch, labels)
    logits = method.logits(batch[:, 0])
    local = F.cross_entropy(logits[:, :2], labels[:, 0], reduction="none")
    whole = F.cross_entropy(logits, labels[:, 0], reduction="none")
    torch.testing.assert_close(losses - method.replay_loss(batch, labels), local - whole, atol=1e-4, rtol=0)
    assert is_right.tolist() == (logits.argmax(1) == labels[:, 0]).tolist()
    # Chunks of a batch add up, and padding weighs nothing.
    found = method.slopes(batch, labels, torch.tensor([1.0, 1, 0]))
    method.values.requires_grad_(True)
    expected = torch.autograd.grad(method.judged(batch[:2], labels[:2])[0].sum(), method.values)[0]
    method.values.requires_grad_(False)
    torch.testing.assert_close(found["slopes"], expected, rtol=1e-3, atol=1e-5)
    assert float(found["count"]) == 2


@pytest.mark.parametrize(("weight", "num_sweeps"), [(0.5, 4), (0.0, 0)])
def test_slopes_are_looked_for_only_where_they_count(
    tiny_backbone: Make,
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    weight: float,
    num_sweeps: int,
) -> None:
    task, run, sweeps = tiny_stream().tasks[0], context(), []
    method = make(tiny_backbone(), slope_weight=weight, tunes="backbone", learning_rate=1e-3, steepest=1.0)
    driver = Driver(run, method, task.train, 0)

    def watched(step: Step, place: Any) -> dict[str, Tensor]:
        sweeps.extend([step] if isinstance(step, Pass) and step.name == "slopes" else [])
        return driver.perform(step, place)

    learn_task(run, method, task, perform=watched)
    assert len(sweeps) == num_sweeps
