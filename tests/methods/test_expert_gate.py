"""Expert Gate: relatedness worked out by hand, experts that stay, and where new ones start."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.drive import Driver
from clare.engine.learn import learn_task
from clare.engine.train import Place
from clare.methods._shared.autoencoder import AutoencoderSettings
from clare.methods._shared.masked import RouteSettings
from clare.methods.expert_gate import ExpertGate, ExpertGateSettings, relatedness
from clare.steps import Phase, Result, Step


def test_relatedness_by_hand() -> None:
    assert relatedness(torch.tensor([3.0, 2.6, 2.5])).tolist() == pytest.approx([0.8, 0.96, 1])


@pytest.mark.parametrize(
    ("by", "related", "loss"), [("autoencoder", -1e6, "kept"), ("autoencoder", 1e6, "plain"), ("energy", -1e6, "plain")]
)
def test_an_expert_starts_from_the_most_related_one_and_keeps_its_answers(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    by: Any,
    related: float,
    loss: str,
) -> None:
    stream, run = tiny_stream(), context()
    route = RouteSettings(by=by, autoencoder=AutoencoderSettings(code=4, epochs=3))
    settings = ExpertGateSettings(epochs=2, batch_size=8, learning_rate=0.05, route=route, related=related)
    method = ExpertGate(tiny_backbone(), settings, 0)
    fresh = method.values.detach().clone()
    experts: list[torch.Tensor] = []
    for task in stream.tasks:
        driver = Driver(run, method, task.train, task.index)

        def watched(step: Step, place: Place, driver: Driver = driver) -> Result:
            if isinstance(step, Phase) and step.name == "train":
                best = method.diagnosis().get("related_to")
                assert (best is None) is (by == "energy" or not experts)
                assert torch.equal(method.values, experts[best - 1] if best else fresh)
                images = stream.test.batch(torch.arange(4))[0]
                inputs, labels = run.transforms.test(images), torch.zeros(4, dtype=torch.int64)
                plain = method.head.block_loss(method.features_at(inputs), labels)
                paid = step.loss(inputs, labels) - plain
                assert bool((paid > 0.01).all()) is (loss == "kept" and bool(experts))
            return driver.perform(step, place)

        learn_task(run, method, task, perform=watched)
        experts.append(method.network(task.index).clone())
    for index, expert in enumerate(experts):
        assert torch.equal(method.network(index), expert)
        assert all(not torch.equal(expert, other) for other in experts[:index])
    assert method.num_passes == 3 + (by == "autoencoder")
