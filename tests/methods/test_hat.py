"""HAT: annealing, gates, compensation, cost and protected numbers worked out by hand; networks that stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.errors import BackboneError
from clare.methods.hat import Hat, HatSettings, annealed, gates_at, taken, units_of

EMBEDDING = torch.tensor([0.5, -0.2, 0.1, -1.0])


def test_annealing_by_hand() -> None:
    found = [float(annealed(torch.tensor(batch / 9), 400)) for batch in (0, 5, 9)]
    assert found == pytest.approx([0.0025, 222.223333, 400])


def test_gates_and_their_gradient_by_hand() -> None:
    embedding, factor = EMBEDDING.clone().requires_grad_(), torch.tensor(2.0)
    gates = gates_at(embedding, factor, 400)
    assert gates.tolist() == pytest.approx([0.731059, 0.401312, 0.549834, 0.119203], abs=1e-6)
    plain = torch.tensor([0.3, -0.1, 0.2, 0.05])
    gates.backward(plain / (2 * gates * (1 - gates)).detach())
    expected = [71.716007, -20.603996, 40.300500, 18.726090]
    assert embedding.grad is not None
    assert embedding.grad.tolist() == pytest.approx(expected, rel=1e-4)


def test_what_lies_far_out_counts_as_if_it_were_nearer_and_can_come_back() -> None:
    embedding = torch.tensor([20.0, 6.0], requires_grad=True)
    gates_at(embedding, torch.tensor(0.1), 400).sum().backward()
    assert embedding.grad is not None
    assert embedding.grad[0] == embedding.grad[1] > 0


def test_the_cost_by_hand() -> None:
    gates = torch.tensor([0.731059, 0.401312, 0.549834, 0.119203])
    assert float(taken(gates, torch.tensor([1.0, 0.0, 0.5, 0.0]))) == pytest.approx(0.318173, abs=1e-6)
    assert float(taken(gates, torch.zeros(4))) == pytest.approx(0.450352, abs=1e-6)
    assert float(taken(gates, torch.ones(4))) == 0


SHAPES: dict[str, tuple[int, ...]] = {"0.down": (2, 3), "0.down_bias": (2,), "0.up": (3, 2), "0.up_bias": (3,)}


def test_units_by_hand() -> None:
    found = units_of({**SHAPES, "1.down": (2, 1)}, has_outputs=False)
    assert found.num_units == 4
    assert found.units.tolist() == [0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 4, 4, 4, 2, 3]
    assert found.outputs.tolist() == [4] * 19
    assert found.reads.nonzero().flatten().tolist() == [8, 9, 10, 11, 12, 13]
    for wrong in ({"attn.qkv.weight": (6, 2)}, {"0.mlp.fc1.weight": (4, 2), "0.mlp.fc2.weight": (2, 2)}):
        with pytest.raises(BackboneError, match=r"set `method\.tunes` to adapter"):
            units_of(wrong, has_outputs=False)


def test_outputs_by_hand() -> None:
    found = units_of({**SHAPES, "1.down": (2, 1)}, has_outputs=True)
    assert found.num_units == 7
    assert found.units.tolist() == [0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 7, 7, 7, 5, 6]
    assert found.outputs.tolist() == [7] * 8 + [2, 2, 3, 3, 4, 4, 2, 3, 4, 7, 7]


def test_what_stays_free_between_hidden_and_output_gates_by_hand() -> None:
    # Four hidden units that earlier tasks use by (1, 0, 0.5, 0), two outputs by (1, 0.25), and inputs always.
    found = units_of({"0.down": (4, 1), "0.down_bias": (4,), "0.up": (2, 4), "0.up_bias": (2,)}, has_outputs=True)
    used = torch.tensor([1, 0, 0.5, 0, 1, 0.25, 1])
    free = 1 - torch.minimum(used[found.units], used[found.outputs])
    down, biases, up, shifts = torch.split(free, [4, 4, 8, 2])
    assert down.tolist() == biases.tolist() == [0, 1, 0.5, 1]
    assert up.view(2, 4).tolist() == [[0, 1, 0.5, 1], [0.75, 1, 0.75, 1]]
    assert shifts.tolist() == [0, 0.75]


@pytest.mark.parametrize(("tunes", "gates"), [("adapter", "hidden"), ("adapter", "all"), ("backbone", "all")])
def test_no_task_changes_the_network_of_another(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    tunes: Any,
    gates: Any,
) -> None:
    stream, run = tiny_stream(), context()
    settings = HatSettings(epochs=2, batch_size=8, learning_rate=0.005, tunes=tunes, gates=gates)
    method = Hat(tiny_backbone(), settings, 0)
    networks = []
    for task in stream.tasks:
        before = method.values.detach().clone()
        learn_task(run, method, task)
        networks.append(method.network(task.index).clone())
        assert not torch.equal(method.values, before)
        assert float(method.position) == 1
    for index, network in enumerate(networks):
        assert torch.equal(method.network(index), network)
    # A gate that is shut cuts a unit off, as if its hidden number were zero.
    parts = dict(zip(method.tuner.shapes, torch.split(networks[0], method.layer_sizes), strict=True))
    shapes = method.tuner.shapes
    name = "0.up" if tunes == "adapter" else "blocks.0.mlp.fc2.weight"
    is_open = method.masks[0][: shapes[name][1]]
    assert 0 < int(is_open.sum()) < len(is_open)
    assert not parts[name].view(shapes[name])[:, ~is_open].any()
    if gates == "all":
        start = shapes[name][1]
        makes_output = method.masks[0][start : start + shapes[name][0]]
        assert 0 < int(makes_output.sum()) < len(makes_output)
        assert not parts[name].view(shapes[name])[~makes_output].any()
        assert parts[name].view(shapes[name])[makes_output].any()
