"""InfLoRA against the official code's numbers, and what it promises of old inputs, merged updates and task counts."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from clare_runs import all_bits, bits, learn
from lora_golden import Golden, Trace, check_steps, close, head_rows, load_golden, take_task
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

import clare
from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context, Silence
from clare.engine.optim import scheduled_rate
from clare.engine.run import run_experiment
from clare.errors import ModelError, SettingsError
from clare.methods._shared.dual_gpm import Basis
from clare.methods.base import bare_features, prepare
from clare.methods.inflora import InfLora, InfLoraSettings, down_of, threshold_of
from clare.methods.state import learnt_tensors
from clare.presets.load import make_experiment
from clare.steps import Adam, Learning, Pass, Phase, Result, Step, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

RECIPE: dict[str, Any] = {"rank": 3, "epochs": 2, "batch_size": 8, "learning_rate": 0.02, "num_tasks": 3}


def make_inflora(backbone: Backbone, **changes: Any) -> InfLora:
    return InfLora(backbone, InfLoraSettings.model_validate({**RECIPE, **changes}), 0)


def images(num_images: int = 6) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=torch.Generator().manual_seed(7))


def official_rows(method: InfLora, golden: Golden, task: int) -> Callable[[], None]:
    """Return what sets the recorded rows of a task's start."""

    def begin() -> None:
        method.head.block.copy_(head_rows(golden, f"task{task}.init.head"))

    return begin


def check_inputs(trace: Trace, golden: Golden, task: int) -> None:
    """Assert that the inputs of all blocks and the directions found in them are those recorded."""
    for when in ("before", "after"):
        means = trace.results[f"inputs {when}"]["moments"] / (24 * 17)
        close(means, golden.stacked(f"task{task}.{when}.moment.blocks.{{}}")[:, 0])
    down, recorded = trace.results["directions"]["down"], golden.stacked(f"task{task}.before.A.blocks.{{}}")
    close(down * (down * recorded).sum(-1, keepdim=True).sign(), recorded)


def check_memory(method: InfLora, golden: Golden, task: int) -> None:
    """Assert that the memory spans what was recorded."""
    for block, basis in enumerate(method.memory.bases()):
        prefix = f"task{task}.memory"
        assert basis.columns.shape == golden[f"{prefix}.basis.blocks.{block}"].shape
        assert basis.is_complement == bool(golden[f"{prefix}.retain.blocks.{block}"])
        close(basis.columns @ basis.columns.T, golden[f"{prefix}.projector.blocks.{block}"])


def test_two_tasks_are_those_of_the_official_code() -> None:
    golden = load_golden("inflora")
    method = make_inflora(golden.backbone(), epochs=1, num_tasks=2)
    test_images, total = golden.images("test.images"), torch.zeros(2, 2, 32, 32)
    for task in range(2):
        trace = take_task(method, golden, task, official_rows(method, golden, task))
        check_steps(trace, golden, task)
        check_inputs(trace, golden, task)
        check_memory(method, golden, task)
        delta = golden.stacked(*(f"task{task}.delta.blocks.{{}}.{part}.weight" for part in "kv"))
        total += delta
        close(method.merged, total)
        close(method.head.rows[-3:], head_rows(golden, f"task{task}.after.head"))
        close(method.features(test_images), golden[f"task{task}.test.features"])
        close(method(test_images), golden[f"task{task}.test.logits"])


@pytest.mark.parametrize("epochs", [5, 20])
def test_the_schedule_is_that_of_the_official_code(epochs: int) -> None:
    recorded = load_golden("inflora")[f"schedule.K{epochs}"]
    rates = [scheduled_rate(1.0, "quarter-cosine", epoch, epochs) for epoch in range(epochs)]
    close(torch.tensor(rates), recorded, atol=1e-6)


def test_the_threshold_rises_in_equal_steps() -> None:
    assert [threshold_of(index, 4, 0.9, 1.0) for index in range(4)] == pytest.approx([0.9, 0.925, 0.95, 0.975])


def observe(method: InfLora, look: Callable[[Step, Result | None], None]) -> None:
    """Call `look` just before every step of the tasks learnt from now on, and just after it with its result."""
    original = method.learn

    def watched(task: TaskInfo) -> Learning:
        learning = original(task)
        result: Any = None
        while True:
            try:
                step = learning.send(result)
            except StopIteration:
                return
            look(step, None)
            result = yield step
            look(step, result)

    method.learn = watched  # type: ignore[method-assign]


def used_part(basis: Basis, matrix: Tensor) -> Tensor:
    """Return the part of a matrix's columns inside what earlier tasks used."""
    return matrix - basis.free_part(matrix)


@pytest.mark.parametrize("threshold", [0.6, 0.95, 0.9999])
def test_directions_are_outside_the_inputs_of_earlier_tasks_and_frozen(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, threshold: float
) -> None:
    method = make_inflora(tiny_backbone(), threshold=threshold)
    phases: list[tuple[list[int], list[int]]] = []
    are_complements: list[bool] = []

    def look(step: Step, result: Result | None) -> None:
        if not isinstance(step, Phase):
            return
        assert step.optimizer == Adam(0.02, schedule="quarter-cosine")
        phases.append((bits(method.lora.down), bits(method.lora.up)))
        if result is None:
            assert not method.lora.up.any()
            for down, basis in zip(method.lora.down, method.memory.bases(), strict=True):
                assert float(used_part(basis, down[0].double().T).norm()) < 1e-6
                are_complements.append(basis.is_complement)

    observe(method, look)
    learn(context(train="affine"), method, tiny_stream().tasks)
    starts, ends = phases[::2], phases[1::2]
    assert len(starts) == 3
    for (down, up), (trained_down, trained_up) in zip(starts, ends, strict=True):
        assert down == trained_down
        assert up != trained_up
    assert len({tuple(down) for down, _ in starts}) == 3
    # A high threshold leaves so little free that the free side is what is kept.
    assert any(are_complements) == (threshold == 0.9999)


def test_a_new_task_hears_no_more_of_an_old_ones_inputs_than_the_threshold_allows(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, moments = make_inflora(tiny_backbone()), []

    def look(step: Step, result: Result | None) -> None:
        if isinstance(step, Pass) and result is not None:
            moments.append(result["moments"])

    observe(method, look)
    learn(context(train="affine"), method, tiny_stream().tasks)
    old, new = moments[3], moments[4]
    loudest = (1 - threshold_of(1, 3, 0.95, 1.0)) / 3
    nothing = Basis(old.new_zeros(24, 0), False)
    for block in range(2):
        energy = old[block].square().sum()
        heard = (method.lora.down[block, 0].double() @ old[block]).square().sum() / energy
        assert float(heard) <= loudest
        # Without the memory the new task's directions would be those of the old one's loudest inputs.
        assert float((down_of(new[block], nothing, 3) @ old[block]).square().sum() / energy) > 5 * loudest


def test_rows_without_a_free_direction_are_silent() -> None:
    moment = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64))
    axes = torch.eye(4, dtype=torch.float64)
    down = down_of(moment, Basis(axes[:, :1], True), 3)
    torch.testing.assert_close(down.abs(), torch.cat([axes[:1], torch.zeros(2, 4)]) / math.sqrt(3))
    torch.testing.assert_close(
        down_of(moment, Basis(axes[:, :1], False), 2).abs(), torch.stack([axes[1], axes[2]]) / math.sqrt(3)
    )
    assert not down_of(moment, Basis(axes[:, :0], True), 3).any()


def merged_copy(method: InfLora, fresh: Backbone) -> VisionTransformer:
    """Return a plain ViT whose weights contain the updates."""
    for block, update in zip(fresh.vit.blocks, method.merged, strict=True):
        weight = cast(Tensor, cast(Any, block).attn.qkv.weight)
        weight[24:48] += update[0]
        weight[48:] += update[1]
    return fresh.vit


@torch.no_grad()
def test_merging_changes_no_output_and_nothing_grows(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, fresh = make_inflora(tiny_backbone()), tiny_backbone()
    bare = bare_features(method, images())
    sizes = set()

    def look(step: Step, result: Result | None) -> None:
        if isinstance(step, Phase) and result is not None:
            trained.append(method.features(images()))
        elif isinstance(step, Pass) and step.name == "inputs after" and result is None:
            merged.append(method.features(images()))

    trained: list[Tensor] = []
    merged: list[Tensor] = []
    observe(method, look)
    for task in tiny_stream().tasks:
        learn(context(), method, [task])
        sizes.add(
            sum(tensor.numel() for name, tensor in learnt_tensors(method).items() if name[:5] in ("lora.", "merge"))
        )
        assert not method.lora.up.any()
        assert torch.equal(bare_features(method, images()), bare)
    assert len(trained) == 3
    assert all(torch.equal(one, other) for one, other in zip(trained, merged, strict=True))
    # Two blocks of: shared down-projection, up-projections and dense sums for keys and values.
    assert sizes == {2 * (3 * 24 + 2 * 24 * 3 + 2 * 24 * 24)}
    assert not torch.allclose(trained[-1], bare, atol=1e-3)
    plain = merged_copy(method, fresh)
    torch.testing.assert_close(plain(images()), method.features(images()), rtol=0, atol=1e-6)


def test_all_that_a_step_reads_stays_in_its_place(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_inflora(tiny_backbone())
    prepare(method, 3, 2)
    kept = (method.lora.down, method.lora.up, method.merged, method.head.block, method.head.closed)
    places = [(tensor.data_ptr(), tensor.shape) for tensor in kept]
    learn(context(), method, tiny_stream().tasks)
    now = (method.lora.down, method.lora.up, method.merged, method.head.block, method.head.closed)
    assert [(tensor.data_ptr(), tensor.shape) for tensor in now] == places


def test_a_stream_tells_the_number_of_tasks_and_the_model_remembers_it(
    tiny_preset: Path, tmp_path: Path, tiny_backbone: MakeBackbone
) -> None:
    experiment = make_experiment(str(tiny_preset), "inflora", ["method.num_tasks=0"])
    run_experiment(experiment, tmp_path / "told", Silence())
    run_experiment(make_experiment(str(tiny_preset), "inflora"), tmp_path / "set", Silence())
    told, chosen = (cast(InfLora, clare.load(tmp_path / run / "model").parts.method) for run in ("told", "set"))
    assert told.num_tasks == 3
    assert all_bits(told) == all_bits(chosen)


def test_an_unknown_number_of_tasks_is_refused_before_training(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    message = r"number of tasks, and nothing tells it; set `method\.num_tasks`"
    with pytest.raises(SettingsError, match=message):
        make_inflora(tiny_backbone(), num_tasks=0).prepare(None, 2)
    with pytest.raises(SettingsError, match=message):
        learn(context(), make_inflora(tiny_backbone(), num_tasks=0), tiny_stream().tasks)
    with pytest.raises(SettingsError, match=message):
        clare.Classifier(backbone=tiny_backbone().vit, method="inflora", device="cpu").reader()
    clare.Classifier(backbone=tiny_backbone().vit, method="inflora", settings={"num_tasks": 2}, device="cpu").reader()


def test_more_tasks_than_announced_are_refused(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    with pytest.raises(SettingsError, match=r"`method\.num_tasks` is 3, but the stream has 4 tasks; set it to 4 or"):
        make_inflora(tiny_backbone()).prepare(4, 2)
    method = make_inflora(tiny_backbone(), num_tasks=2, epochs=1)
    prepare(method, None, 2)
    learn(context(), method, tiny_stream().tasks[:2])
    before = all_bits(method)
    with pytest.raises(ModelError, match=r"task 3 came, but `method\.num_tasks` is 2; start again"):
        learn(context(), method, tiny_stream().tasks[2:])
    assert all_bits(method) == before


def test_a_rank_beyond_the_width_is_refused(tiny_backbone: MakeBackbone) -> None:
    with pytest.raises(SettingsError, match=r"`method\.rank` is 25, but the backbone is 24 wide; set it to 24 or less"):
        make_inflora(tiny_backbone(), rank=25)
