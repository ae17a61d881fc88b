"""What recorded programs use stays in its place, and what is recorded compiles whole: for every method that can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers import tiered
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.engine.step import TrainStep
from clare.methods import METHODS
from clare.methods.base import Method, prepare
from clare.methods.protocols import GrowsFeatures, GrowsRoom, LearnsAllAtOnce
from clare.presets.load import make_experiment
from clare.steps import Phase


class Watcher(TorchDispatchMode):
    """Notes which tensors of a method a program uses, and refuses what a recorded program cannot do."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        tensors = {**dict(method.named_parameters()), **dict(method.named_buffers())}
        self.names = {tensor.untyped_storage().data_ptr(): name for name, tensor in tensors.items() if tensor.numel()}
        self.used: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at every operation."""
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default), func
        for part in tree_flatten((args, kwargs))[0]:
            if isinstance(part, Tensor):
                place = part.untyped_storage().data_ptr()
                if place in self.names:
                    self.used[self.names[place]] = place
        return func(*args, **(kwargs or {}))


FIXED = [
    name for name in METHODS if METHODS.get(name).fixed_shapes and not issubclass(METHODS.get(name), LearnsAllAtOnce)
]


@pytest.mark.parametrize("name", tiered(FIXED))
def test_what_a_recorded_program_uses_stays_in_its_place(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tiny_preset: Path,
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    stream, run = tiny_stream(), context()
    method = METHODS.get(name)(tiny_backbone(), make_experiment(str(tiny_preset), name).method_settings(), 0)
    prepare(method, len(stream.tasks), 2)
    phases: list[Phase] = []
    train_step = run.programs.train_step

    def watched(learner: Method, phase: Phase) -> TrainStep:
        phases.append(phase)
        return train_step(learner, phase)

    def loss() -> Tensor:
        phase, inputs, known = phases[0], images, labels
        if phase.replay and phase.replay.pools:
            num_beside = len(phase.replay.pools)
            inputs, known = (
                images[:, None].repeat(1, 1 + num_beside, 1, 1, 1),
                labels[:, None].repeat(1, 1 + num_beside),
            )
        return phase.loss(inputs, known)

    monkeypatch.setattr(run.programs, "train_step", watched)
    images, labels = torch.randn(4, 1, 28, 28), torch.tensor([0, 1, 0, 1])
    uses: list[dict[str, dict[str, int]]] = []
    rooms: list[int] = []
    for task in stream.tasks:
        phases.clear()
        learn_task(run, method, task, Journal())
        programs: dict[str, Callable[[], Tensor]] = {}
        if not isinstance(method, GrowsFeatures):
            programs["features"] = lambda: method.features(images)
        # A loss on drawn features is never recorded.
        if phases and task.index > 0:
            programs["loss"] = loss
        used = {}
        for program, work in programs.items():
            with torch.no_grad(), Watcher(method) as watcher:
                work()
            used[program] = watcher.used
        uses.append(used)
        rooms.append(method.room if isinstance(method, GrowsRoom) else 0)
    # With other room everything is recorded anew.
    assert uses[1] == uses[2] or rooms[1] != rooms[2]


@pytest.mark.parametrize("name", tiered(FIXED))
def test_what_is_recorded_can_be_compiled_whole(
    name: str,
    tiny_preset: Path,
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    stream, run = tiny_stream(num_tasks=2), context()
    method = METHODS.get(name)(tiny_backbone(), make_experiment(str(tiny_preset), name).method_settings(), 0)
    prepare(method, len(stream.tasks), 2)
    for task in stream.tasks:
        learn_task(run, method, task, Journal())
    torch._dynamo.reset()
    images = torch.randn(4, 1, 28, 28)
    traced = torch.compile(method.features, fullgraph=True, dynamic=False, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(traced(images), method.features(images))
