"""SD-LoRA against the official code's numbers, and what it promises of directions and magnitudes."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from clare_runs import bits, learn
from lora_golden import Golden, check_steps, close, head_rows, load_golden, take_task
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import count_parameters
from clare.errors import SettingsError
from clare.methods.base import passes_per_image
from clare.methods.sdlora import SdLora, SdLoraSettings
from clare.methods.state import restore, snapshot_of
from clare.steps import Phase, Sgd, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

RECIPE: dict[str, Any] = {"rank": 3, "epochs": 2, "batch_size": 8, "learning_rate": 0.1}


def make_sdlora(backbone: Backbone, **changes: Any) -> SdLora:
    return SdLora(backbone, SdLoraSettings.model_validate({**RECIPE, **changes}), 0)


def official_init(method: SdLora, golden: Golden, task: int) -> Callable[[], None]:
    """Return what sets the recorded values of a task's start and checks what is ours by then."""

    def begin() -> None:
        method.lora.down.copy_(golden.stacked(*(f"task{task}.init.A_{part}.blocks.{{}}" for part in "qv")))
        method.head.block.copy_(head_rows(golden, f"task{task}.init.head")[-3:])
        assert not method.lora.up.any()
        close(method.magnitudes, golden[f"task{task}.init.magnitude"])
        close(method.features(golden.images("test.images")), golden[f"task{task}.init.test.features"])

    return begin


def test_two_tasks_are_those_of_the_official_code() -> None:
    golden = load_golden("sdlora")
    method = make_sdlora(golden.backbone(), learning_rate=0.3, epochs=1)
    test_images = golden.images("test.images")
    for task in range(2):
        trace = take_task(method, golden, task, official_init(method, golden, task))
        check_steps(trace, golden, task)
        recorded = {name: f"task{task}.after.{name}" for name in ("A", "B", "direction", "norm", "normalised")}

        def both(name: str, recorded: dict[str, str] = recorded) -> Tensor:
            return golden.stacked(*(f"{recorded[name]}_{part}.blocks.{{}}" for part in "qv"))

        close(method.lora.down, both("A"))
        close(method.lora.up, both("B"))
        close(method.lora.product(), both("direction"))
        close(method.lora.up.flatten(2).norm(dim=2) * method.lora.down.flatten(2).norm(dim=2), both("norm"))
        close(method.magnitudes, golden[f"task{task}.after.magnitude"])
        close(method.head.rows, head_rows(golden, f"task{task}.after.head"))
        close(method.features(test_images), golden[f"task{task}.test.features"])
        close(method(test_images), golden[f"task{task}.test.logits"])
        normalised = both("normalised")
        if task == 0:
            first = normalised
    method.fix_direction()
    method.lora.up.zero_()
    method.magnitudes.fill_(0.8)
    close(method.magnitudes, golden["task2.init.magnitude"])
    close(method.features(test_images), golden["task2.init.test.features"])
    for index, direction in enumerate((first, normalised)):
        part = slice(3 * index, 3 * index + 3)
        close(method.earlier_up[..., part] @ method.earlier_down[:, :, part], direction)


def test_the_update_is_the_sum_of_directions_times_magnitudes(tiny_backbone: MakeBackbone) -> None:
    method = make_sdlora(tiny_backbone(), rank=2)
    generator = torch.Generator().manual_seed(0)
    pairs = [
        (torch.randn(2, 2, 24, 2, generator=generator), torch.randn(2, 2, 2, 24, generator=generator)) for _ in range(3)
    ]
    for index, (up, down) in enumerate(pairs):
        if index:
            method.fix_direction()
        method.lora.up.data.copy_(up)
        method.lora.down.data.copy_(down)
    method.magnitudes.data.copy_(torch.tensor([0.5, -2.0, 3.0]))
    for block in range(2):
        for part in range(2):
            expected = torch.zeros(24, 24)
            for (up, down), magnitude in zip(pairs[:2], (0.5, -2.0), strict=True):
                product = up[block, part] @ down[block, part]
                expected += magnitude * product / (up[block, part].norm() * down[block, part].norm())
            expected += 3.0 * pairs[2][0][block, part] @ pairs[2][1][block, part]
            torch.testing.assert_close(method.update()[block, part], expected, rtol=1e-5, atol=1e-5)


def test_earlier_directions_are_normalised_and_stay_while_all_magnitudes_are_learnt(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, stream = make_sdlora(tiny_backbone()), tiny_stream()
    kept: list[tuple[list[int], list[int]]] = []
    for task in stream.tasks:
        learn(context(), method, [task])
        num_earlier = task.index
        assert method.magnitudes.shape == (num_earlier + 1,)
        assert bool((method.magnitudes != 0.8).all())
        assert method.earlier_up.shape == (2, 2, 24, 3 * num_earlier)
        directions = []
        for index in range(num_earlier):
            part = slice(3 * index, 3 * index + 3)
            up, down = method.earlier_up[..., part], method.earlier_down[:, :, part]
            torch.testing.assert_close(up.flatten(2).norm(dim=2), torch.ones(2, 2))
            torch.testing.assert_close(down.flatten(2).norm(dim=2), torch.ones(2, 2))
            directions.append((bits(up), bits(down)))
        assert directions[: len(kept)] == kept
        kept = directions
    assert len(kept) == 2


def test_a_task_starts_from_a_silent_direction_and_equal_magnitudes(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_sdlora(tiny_backbone(), magnitude=0.3)
    learn(context(), method, tiny_stream().tasks[:1])
    with torch.no_grad():
        phase = next(method.learn(TaskInfo(1, ("new", "newer"))))
    assert isinstance(phase, Phase)
    assert phase.optimizer == Sgd(0.1, 0.9, 0.0, "constant")
    assert method.magnitudes.tolist() == [pytest.approx(0.3)] * 2
    assert not method.lora.up.any()
    trained = [group.parameter for group in phase.groups]
    expected = (method.lora.down, method.lora.up, method.magnitudes, method.head.block)
    assert all(one is other for one, other in zip(trained, expected, strict=True))
    images, labels = torch.rand(4, 1, 28, 28), torch.tensor([0, 1, 0, 1])
    for parameter in trained:
        parameter.requires_grad_(True)
    down, up, magnitudes, block = torch.autograd.grad(phase.loss(images, labels).sum(), trained)
    # With an up-projection of zeros only it, the rows and the earlier magnitudes feel the loss.
    assert not down.any()
    assert float(magnitudes[-1]) == 0
    assert float(magnitudes[0]) != 0
    assert up.any()
    assert block.any()


def test_more_than_twenty_tasks_and_what_each_costs(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_sdlora(tiny_backbone(), epochs=1, head={"kind": "prototype"})
    stored = []
    for task in tiny_stream(num_tasks=23, num_train=4, num_test=1).tasks:
        learn(context(), method, [task])
        stored.append(count_parameters(method)["num_stored"])
    assert len(method.magnitudes) == 23
    # Factors of two parts in two blocks, one magnitude, and two rows.
    growth = 2 * 2 * (24 * 3 + 3 * 24) + 1 + 2 * 24
    assert {later - earlier for earlier, later in pairwise(stored)} == {growth}
    assert passes_per_image(method) == 1
    assert bool(method.update().isfinite().all())


def test_a_direction_that_did_not_move_does_no_harm(tiny_backbone: MakeBackbone) -> None:
    method = make_sdlora(tiny_backbone())
    method.fix_direction()
    method.magnitudes.data.fill_(0.8)
    assert not method.update().any()


def test_a_rank_beyond_the_width_is_refused(tiny_backbone: MakeBackbone) -> None:
    with pytest.raises(SettingsError, match=r"`method\.rank` is 25, but the backbone is 24 wide; set it to 24 or less"):
        make_sdlora(tiny_backbone(), rank=25)


def test_later_ranks_are_lower_when_asked(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    """The authors' ranks are 10 for four tasks, 8 for four, and 6 from then on."""
    whole, reduced = make_sdlora(tiny_backbone(), rank=10), make_sdlora(tiny_backbone(), rank=10, reduces_rank=True)
    assert {whole.rank_of(index) for index in range(12)} == {10}
    assert [reduced.rank_of(index) for index in range(12)] == [10] * 4 + [8] * 4 + [6] * 4
    tasks = tiny_stream(num_tasks=6, num_train=4, num_test=1).tasks
    small = make_sdlora(tiny_backbone(), reduces_rank=True, epochs=1)
    learn(context(), small, tasks)
    assert [small.rank_of(index) for index in range(6)] == [3] * 4 + [2] * 2
    assert small.earlier_up.shape[-1] == small.num_earlier == 3 * 4 + 2
    assert small.lora.up[..., :2].any()
    assert not small.lora.up[..., 2:].any()
    assert not small.lora.down[:, :, 2:].any()
    fresh = make_sdlora(tiny_backbone(), reduces_rank=True, epochs=1)
    restore(fresh, snapshot_of(small))
    torch.testing.assert_close(fresh.update(), small.update())
