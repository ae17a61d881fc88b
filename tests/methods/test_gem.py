"""GEM and A-GEM: corrected gradients by hand, and what a step does to earlier tasks."""

from collections.abc import Callable

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods.agem import AgemSettings, AverageGem, harmless
from clare.methods.gem import Gem, GemSettings, bent

GRADIENT = torch.tensor([1.0, -1.0, 0.5])
EARLIER = torch.tensor([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.2], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("margin", "ridge", "expected"),
    [
        (0.0, 0.0, (0.0, -0.134615, 0.673077)),
        (0.5, 0.0, (0.0, -0.230769, 1.153846)),
        (0.0, 1e-3, (0.000999, -0.135447, 0.672911)),
        (0.5, 1e-3, (0.000999, -0.231508, 1.153698)),
    ],
)
def test_gem_by_hand(margin: float, ridge: float, expected: tuple[float, ...]) -> None:
    found = bent(GRADIENT, EARLIER, margin, ridge)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    if not margin and not ridge:
        assert (EARLIER @ found).tolist() == pytest.approx([0, 0, 0.673077], abs=1e-5)


def test_a_step_that_harms_nobody_stays_as_it_is() -> None:
    assert torch.equal(bent(GRADIENT, -EARLIER[:2], 0.5, 1e-3), GRADIENT)
    assert torch.equal(harmless(GRADIENT, torch.tensor([[1.0, 0.0, 0.0]])), GRADIENT)
    assert torch.equal(harmless(GRADIENT, torch.zeros(1, 3)), GRADIENT)


def test_agem_by_hand() -> None:
    other = torch.tensor([[-1.0, 0.5, 0.1]])
    found = harmless(GRADIENT, other)
    assert found.tolist() == pytest.approx([-0.150794, -0.424603, 0.615079], abs=1e-6)
    assert float(other @ found) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("kind", "settings"), [(Gem, GemSettings), (AverageGem, AgemSettings)])
def test_every_earlier_task_has_a_picture_beside_each_image(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    kind: type[Gem | AverageGem],
    settings: type[GemSettings],
) -> None:
    values = {"epochs": 1, "batch_size": 8, "memory": {"pictures": 8}}
    method = kind(tiny_backbone(), settings.model_validate(values), 0)
    stream, run = tiny_stream(), context()
    for task in stream.tasks[:2]:
        learn_task(run, method, task)
    method.head.open_block(2, torch.Generator().manual_seed(0))
    method.contrast.take(method.head)
    phase = method.train_phase()
    assert phase.replay is not None
    assert phase.correction is not None
    assert len(phase.correction.losses) == len(phase.replay.pools) == (2 if kind is Gem else 1)
    classes = method.kept[1]
    of_tasks = [sorted(set((classes[pool] // 2).tolist())) for pool in phase.replay.pools]
    assert of_tasks == ([[0], [1]] if kind is Gem else [[0, 1]])
