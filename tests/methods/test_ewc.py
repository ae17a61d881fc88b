"""EWC: importance and penalty worked out by hand, and springs that hold."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods.ewc import Ewc, EwcSettings, centre_of, penalty, summed_squares, weighed_labels

WEIGHTS = torch.tensor([0.5, -0.5, 0.0, 1.0])
SAMPLES, LABELS = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1])
FISHER = torch.tensor([0.071268, 0.004498, 0.071268, 0.004498])


def likelihood(values: Tensor, sample: Tensor, label: Tensor) -> Tensor:
    """Return the log-likelihood of a label under two linear rows."""
    return F.log_softmax(values.view(2, 2) @ sample, dim=0).gather(0, label[None])[0]


@pytest.mark.parametrize(("choice", "expected"), [("true", (0.071268, 0.004498)), ("exact", (0.117502, 0.090353))])
def test_importance_by_hand(choice: str, expected: tuple[float, float]) -> None:
    shares = F.softmax(SAMPLES @ WEIGHTS.view(2, 2).T, dim=1)
    weighed = weighed_labels(choice, LABELS, shares)  # type: ignore[arg-type]
    fisher = summed_squares(likelihood, WEIGHTS, SAMPLES, weighed) / 2
    assert fisher.tolist() == pytest.approx([*expected, *expected], abs=1e-6)


def test_drawn_labels_come_as_often_as_they_are_likely() -> None:
    torch.manual_seed(0)
    shares = torch.tensor([[0.9, 0.1]]).expand(2000, 2)
    ((labels, weights),) = weighed_labels("sampled", torch.zeros(2000, dtype=torch.int64), shares)
    assert float(labels.float().mean()) == pytest.approx(0.1, abs=0.03)
    assert weights.unique().tolist() == [1.0]


def test_the_penalty_by_hand() -> None:
    values = (WEIGHTS + 0.1).requires_grad_()
    paid = penalty(values, WEIGHTS, 100 * FISHER)
    assert paid.item() == pytest.approx(0.075767, abs=1e-5)
    (gradient,) = torch.autograd.grad(paid, values)
    assert gradient.tolist() == pytest.approx([0.712685, 0.044984] * 2, abs=1e-4)
    later = 0.9 * FISHER + 0.01
    assert later[:2].tolist() == pytest.approx([0.074142, 0.014049], abs=1e-5)
    assert penalty(values, WEIGHTS, 100 * 0.9 * later).item() == pytest.approx(0.079371, abs=1e-5)


def test_springs_to_every_task_are_one_spring_but_for_a_constant() -> None:
    first, second = (torch.tensor([4.0, 1.0]), torch.zeros(2)), (torch.tensor([1.0, 3.0]), torch.tensor([1.0, 0.5]))
    values = torch.tensor([0.5, 1.0])
    apart = sum(float(penalty(values, anchor, fisher)) for fisher, anchor in (first, second))
    assert apart == pytest.approx(1.5)
    assert float(penalty(values, second[1], first[0] + second[0])) == pytest.approx(1.125)
    centre = centre_of(*first, *second)
    constant = sum(float(penalty(centre, anchor, fisher)) for fisher, anchor in (first, second))
    assert float(penalty(values, centre, first[0] + second[0])) + constant == pytest.approx(1.5)
    assert centre_of(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.tensor([3.0])).tolist() == [3.0]


@pytest.mark.parametrize("online", [True, False])
def test_what_counts_stays_where_it_was(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    online: bool,
) -> None:
    stream, run = tiny_stream(), context()
    recipe = {"epochs": 2, "batch_size": 8, "learning_rate": 0.02}
    moves = {}
    for weight in (0.0, 1e6):
        method = Ewc(tiny_backbone(), EwcSettings(**recipe, weight=weight, online=online), 0)  # type: ignore[arg-type]
        learn_task(run, method, stream.tasks[0])
        before, fisher = method.values.detach().clone(), method.fisher.clone()
        learn_task(run, method, stream.tasks[1])
        # How far it went, by what it costs the first task.
        moves[weight] = float((fisher * (method.values - before).square()).sum())
        assert float(method.fisher.mean()) == pytest.approx(2, rel=1e-3)
        assert torch.isfinite(method.values).all()
    assert moves[1e6] < 0.25 * moves[0.0], moves
    assert ("centre" in method.state_dict()) is not online


def test_importance_is_that_of_single_images(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    method = Ewc(tiny_backbone(), EwcSettings(epochs=1, normalise=False), 0)
    stream = tiny_stream()
    learn_task(context(eval_batch_size=5), method, stream.tasks[0])
    source = context().transforms
    canvas, labels = stream.tasks[0].train.batch(torch.arange(len(stream.tasks[0].train)))
    squares = torch.zeros_like(method.values)
    for image, label in zip(source.test(canvas), labels, strict=True):
        values = method.values.detach().clone().requires_grad_()
        loss = F.cross_entropy(method.new_logits(image[None], values, 2), label[None])
        squares += torch.autograd.grad(loss, values)[0].square()
    torch.testing.assert_close(method.fisher, squares / len(labels), rtol=1e-3, atol=1e-9)
