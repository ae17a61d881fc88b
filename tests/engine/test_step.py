"""Steps that keep their tensors in place, and are made once for each kind."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine import step as step_module
from clare.engine.context import Context
from clare.engine.journal import NoJournal
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.errors import SettingsError
from clare.methods.clare import Clare, ClareSettings
from clare.steps import Group, Penalty, Phase, Sgd

SETTINGS = {
    "adapter": {"bottleneck": 4},
    "epochs": 2,
    "probe_epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.05,
    "sparsity": 0.8,
    "head": {"strategy": "aligned", "align_epochs": 2},
}


class Replayed:
    """A graph that does its work again where there is no GPU to record it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps be captured on a CPU: nothing is compiled, and a replay is the same work on the same tensors."""

    def record(work: Callable[[], None]) -> Replayed:
        for _ in range(step_module.NUM_WARM_UPS):
            work()
        return Replayed(work)

    monkeypatch.setattr(step_module, "record", record)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", torch.set_rng_state)
    monkeypatch.setattr(Ranks, "can_capture", property(lambda _: True))


def learnt(context: Context, backbone: Backbone, stream: Stream) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Learn the whole stream, and return what was learnt and the logits of the test images."""
    method = Clare(backbone, ClareSettings.model_validate(SETTINGS), 0).to(context.ranks.device)
    method.head.reserve(max(len(task.classes) for task in stream.tasks))
    for task in stream.tasks:
        learn_task(context, method, task, NoJournal())
    return method.tensors(), predict_logits(context, method, stream.test)


@pytest.mark.usefixtures("captured")
def test_captured_steps_learn_the_same_and_are_made_once_per_kind(
    context: Callable[..., Context], tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream]
) -> None:
    stream = tiny_stream(num_tasks=12)
    eager = learnt(context(train="affine"), tiny_backbone(), stream)
    graphs = context(train="affine", compile="graph", eval_batch_size=32)
    replayed = learnt(graphs, tiny_backbone(), stream)
    for name, tensor in eager[0].items():
        torch.testing.assert_close(replayed[0][name], tensor, msg=name)
    torch.testing.assert_close(replayed[1], eager[1])
    assert [kind[0] for kind in graphs.steps.kinds] == ["train", "train", "forward"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_graphs_agree_with_eager_steps(
    context: Callable[..., Context], tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream]
) -> None:
    stream = tiny_stream()
    eager = learnt(context(device="cuda", precision="fp32"), tiny_backbone(), stream)
    graphs = learnt(context(device="cuda", precision="fp32", compile="graph"), tiny_backbone(), stream)
    torch.testing.assert_close(graphs[1], eager[1], rtol=0, atol=1e-2)


def test_graphs_are_refused_without_a_gpu(context: Callable[..., Context]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(SettingsError, match="needs one GPU and one process; set it to off"):
        context(compile="graph")


def test_a_step_begins_with_the_masks_of_its_phase_and_fresh_momenta() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    anchor = torch.zeros(3)

    def phase(*mask: bool) -> Phase:
        group = Group(parameter, torch.tensor(mask), Penalty(0.0, "l1-subgradient", anchor))
        return Phase("train", 1, [group], lambda inputs, _: -(inputs * parameter).sum(1), Sgd(1.0), 2)

    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase(True, False, False))
    step.optimizer.set_rate(1.0)
    batch = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), torch.ones(2), 2
    step(*batch)
    assert parameter.tolist() == [1, 0, 0]
    step.begin(phase(False, True, False))
    step(*batch)
    assert parameter.tolist() == [1, 1, 0]
    assert step.optimizer.momenta[0].tolist() == [-1, -1, -1]
    assert float(step.total) == pytest.approx(-2.0)


def test_padding_weighs_nothing() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    phase = Phase("train", 1, [Group(parameter)], lambda inputs, _: -(inputs * parameter).sum(1), Sgd(1.0), 4)
    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
    step.optimizer.set_rate(1.0)
    step(torch.tensor([[1.0], [3.0], [100.0]]), torch.zeros(3, dtype=torch.int64), torch.tensor([1.0, 1.0, 0.0]), 2)
    assert parameter.tolist() == [2.0]
