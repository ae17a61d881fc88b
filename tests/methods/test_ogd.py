"""OGD: directions, projection and reparametrised steps by hand, and answers that hardly move."""

from collections.abc import Callable

import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods.ogd import Ogd, OgdSettings, added, free

VECTORS = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [2.0, 1.0, 1.0, 0.0]])


def test_directions_by_hand() -> None:
    basis = added(torch.zeros(0, 4), VECTORS)["directions"]
    expected = [[0.707107, 0.707107, 0, 0], [0.408248, -0.408248, 0.816497, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(basis, torch.tensor(expected), atol=1e-6, rtol=0)
    torch.testing.assert_close(added(basis[:1], VECTORS[1:2])["directions"], basis[1:2])
    gradient = free(torch.tensor([1.0, 2.0, 3.0, 4.0]), basis)
    torch.testing.assert_close(gradient, torch.tensor([-1.333333, 1.333333, 1.333333, 4.0]), atol=1e-6, rtol=0)


def test_a_way_through_the_projection_is_projected_descent_with_momentum() -> None:
    basis, gradient = added(torch.zeros(0, 4), VECTORS)["directions"], torch.tensor([1.0, 2.0, 3.0, 4.0])
    way = momentum = values = velocity = torch.zeros(4)
    for _ in range(3):
        momentum = 0.9 * momentum + free(gradient, basis)
        way = way - 0.1 * momentum
        velocity = 0.9 * velocity + free(gradient, basis)
        values = values - 0.1 * velocity
    torch.testing.assert_close(free(way, basis), values)
    torch.testing.assert_close(values, torch.tensor([0.748, -0.748, -0.748, -2.244]), atol=1e-5, rtol=0)


def test_earlier_answers_move_less(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run = tiny_stream(), context()
    recipe = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01}
    method = Ogd(tiny_backbone(), OgdSettings(**recipe, vectors=24), 0)  # type: ignore[arg-type]
    learn_task(run, method, stream.tasks[0])
    start = method.values.detach().clone()
    assert method.basis.shape == (24, len(start))
    torch.testing.assert_close(method.basis @ method.basis.T, torch.eye(24), atol=1e-4, rtol=0)
    assert not method.way.any()
    basis = method.basis.clone()
    learn_task(run, method, stream.tasks[1])
    moved = method.values.detach() - start
    assert float(moved.norm()) > 1e-3
    assert float((basis @ moved).norm()) < 1e-4 * float(moved.norm())
    assert method.basis.shape == (48, len(start))
