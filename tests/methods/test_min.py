"""MIN's four recorded tasks: the mixture that stays nothing for two of them, the training of maps, the regression."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import learn, phases_of
from safetensors.torch import load_file
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.methods.min import Min, MinSettings, mixture
from clare.steps import Collect, Phase, Result, Solve, Step, TaskInfo, next_step

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "min.safetensors")
MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_min(backbone: Backbone, **changes: Any) -> Min:
    head = {"num_projected": 32, "ridge": 0.5}
    values = {"hidden": 4, "first_epochs": 2, "epochs": 2, "batch_size": 6, "head": head, **changes}
    return Min(backbone, MinSettings.model_validate(values), 0)


def recorded_min(backbone: Backbone) -> Min:
    """Return a method whose backbone hands vectors on to the maps of one block, as the recorded one does."""
    method = make_min(backbone, learning_rate=0.25, weight_decay=0.01, num_sweeps=1, as_published=True)
    method.head.projection.copy_(GOLDEN["projection"])
    method.maps.down.copy_(GOLDEN["down"][None])
    method.maps.up.copy_(GOLDEN["up"][None])

    def features(vectors: Tensor) -> Tensor:
        with method.maps.spread():
            added: Tensor = method.maps.act(0, torch.nn.Identity(), vectors[:, None])[:, 0]
        # The norms are trained with the first task's map: here they count for nothing.
        return added + 0 * method.norms.values.sum()

    method.features = features  # type: ignore[method-assign]
    return method


def done(method: Min, step: Step, task: int, rows: list[Tensor]) -> Result:
    """Do a step on the recorded vectors, and note the rows that were solved."""
    vectors, labels = GOLDEN[f"{task}.x"], GOLDEN[f"{task}.y"]
    if isinstance(step, Collect):
        return {"values": step.function(vectors), "labels": labels}
    if isinstance(step, Solve):
        rows.append(step.function()["rows"])
        return {"rows": rows[-1]}
    assert isinstance(step, Phase)
    run, parameters = TrainStep(Ranks(EngineSettings(device="cpu")), step), [each.parameter for each in step.groups]
    for parameter in parameters:
        parameter.requires_grad_(True)
    run.optimizer.set_rate(0.25)
    for _ in range(step.epochs):
        for chosen in torch.arange(12).split(step.batch_size):
            run(vectors[chosen], labels[chosen], torch.ones(6), 6)
    for parameter in parameters:
        parameter.requires_grad_(False)
    return {}


def test_four_recorded_tasks(tiny_backbone: MakeBackbone) -> None:
    method = recorded_min(tiny_backbone(depth=1))
    for task in range(4):
        rows: list[Tensor] = []
        learning, result = method.learn(TaskInfo(task, ("a", "b"))), None
        with torch.no_grad():
            while True:
                try:
                    step = next_step(learning, result)
                except StopIteration:
                    break
                result = done(method, step, task, rows)
        method.tasks.append((f"{task}.a", f"{task}.b"))
        found = {
            "linear": method.maps.linear[0],
            "mu": method.maps.current[0, 0],
            "sigma": method.maps.current[1, 0],
            "shares": method.maps.shares[0],
            "prototype": method.prototypes[-1],
            "features": method.features(GOLDEN[f"{task}.x"]),
        }
        for name, tensor in found.items():
            expected = GOLDEN[f"{task}.{name}"][-1] if name in ("mu", "sigma") else GOLDEN[f"{task}.{name}"]
            torch.testing.assert_close(tensor.detach(), expected, rtol=0, atol=1e-5)
        if task:
            torch.testing.assert_close(rows[0], GOLDEN[f"{task}.before.rows"], rtol=0, atol=1e-5)
        torch.testing.assert_close(rows[-1], GOLDEN[f"{task}.rows"], rtol=0, atol=1e-5)
    torch.testing.assert_close(method(GOLDEN["3.x"]), GOLDEN["logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, [0.401312, 0.598688]), (2.0, [0.450166, 0.549834])])
def test_a_mixture_by_hand(temperature: float, expected: list[float]) -> None:
    shares = mixture(torch.tensor([1.0, 0.0]), torch.tensor([[0.6, 0.8]]), temperature)
    torch.testing.assert_close(shares, torch.tensor(expected), rtol=0, atol=1e-6)


def test_by_default_shares_are_trained_from_the_tasks_own_mean_on(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_min(tiny_backbone(), learning_rate=0.05)
    starts = []
    begin = method.maps.begin
    method.maps.begin = lambda shares: (starts.append(shares), begin(shares))  # type: ignore
    learn(context(), method, tiny_stream().tasks)
    assert torch.equal(starts[0], torch.ones(1))
    for start in starts:
        torch.testing.assert_close(start.sum(), torch.ones(()))
        # Nothing is more like a task than itself.
        assert int(start.argmax()) == len(start) - 1
    assert float((method.maps.shares - starts[-1]).abs().max()) > 1e-6
    assert float(method.maps.kept.abs().amax((1, 2, 3)).min()) > 0


@pytest.mark.parametrize(("as_published", "opens_backbone"), [(False, False), (False, True), (True, True)])
def test_what_tasks_train(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, as_published: bool, opens_backbone: bool
) -> None:
    method = make_min(tiny_backbone(), as_published=as_published, opens_backbone=opens_backbone, learning_rate=0.05)
    start = method.norms.values.clone()
    # Five norms of a backbone of two blocks, with weights and biases.
    assert len(start) == 5 * 2 * 24
    phases = phases_of(method)
    learn(context(), method, tiny_stream().tasks[:1])
    assert torch.equal(method.norms.values, start) != opens_backbone
    trained, linear = method.norms.values.clone(), method.maps.linear.clone()
    assert bool(linear.any()) == opens_backbone
    learn(context(), method, tiny_stream().tasks[1:2])
    assert torch.equal(method.norms.values, trained)
    assert torch.equal(method.maps.linear, linear)
    # In the second published task nothing but rows that are dropped is trained.
    assert bool(method.maps.current.any()) != as_published
    counts = [len(phase.groups) for phase in phases]
    assert counts == [3 + (not as_published) + 2 * opens_backbone, 2 + (not as_published)]
