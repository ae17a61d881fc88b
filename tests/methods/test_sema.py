"""SEMA adds adapters where a task is new, one for each block and task at most, and changes nothing old."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import bits, learn
from run_outcome import Stop, outcome
from safetensors.torch import load
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.sources import load_dataset
from clare.data.stream import Stream, Task
from clare.engine.context import Context, Silence
from clare.engine.folder import RunFolder
from clare.engine.passes import FeatureCache
from clare.engine.run import run_experiment
from clare.errors import SettingsError
from clare.methods.base import passes_per_image
from clare.methods.sema import Sema, SemaSettings, batch_criteria, first_above, share_of_blocks
from clare.methods.state import learnt_tensors
from clare.presets.load import make_experiment
from clare.settings import build_settings
from clare.steps import Collect, Learning, Phase, Step, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

RECIPE: dict[str, Any] = {
    "adapter": {"bottleneck": 4, "descriptor": 4},
    "expandable_share": 1.0,
    "threshold": 0.0,
    "scan_batch_size": 5,
    "epochs": 2,
    "descriptor_epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.005,
    "weight_decay": 5e-2,
}


def make_sema(backbone: Backbone, **changes: Any) -> Sema:
    return Sema(backbone, SemaSettings.model_validate({**RECIPE, **changes}), 0)


def steps_of(method: Sema) -> list[Step]:
    """Return a list that fills with the steps of all tasks learnt from now on."""
    steps: list[Step] = []
    original = method.learn

    def watched(task: TaskInfo) -> Learning:
        learning = original(task)
        try:
            step = next(learning)
            while True:
                steps.append(step)
                step = learning.send((yield step))
        except StopIteration:
            return

    method.learn = watched  # type: ignore[method-assign]
    return steps


def names_of(steps: list[Step]) -> list[str]:
    return [step.name for step in steps if isinstance(step, Phase | Collect)]


def test_everything_old_keeps_its_bits(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_sema(tiny_backbone(depth=3), expandable_share=0.6)
    learn(context(train="affine"), method, tiny_stream().tasks[:1])
    for task in tiny_stream().tasks[1:]:
        before = {name: tensor.clone() for name, tensor in learnt_tensors(method).items()}
        learn(context(train="affine"), method, [task])
        now = learnt_tensors(method)
        assert method.mixture.counts == [task.index + 1, task.index + 1]
        for name, old in before.items():
            if name != "head.block":
                assert bits(now[name][: len(old)]) == bits(old), name
        new = {name.rpartition(".")[2] for name, old in before.items() if len(now[name]) > len(old)}
        assert new == {"rows", *(name for name, _ in method.mixture.routed[0].named_parameters())}


@pytest.mark.parametrize("threshold", [0.0, 1e6])
def test_the_threshold_decides_and_no_block_gets_two(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, threshold: float
) -> None:
    method, tasks = make_sema(tiny_backbone(), threshold=threshold), tiny_stream().tasks
    steps = steps_of(method)
    learn(context(), method, tasks[:1])
    assert names_of(steps) == ["train", "describe", "statistics"]
    probe = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    features = method.features(probe)
    for task in tasks[1:]:
        version = method.features_version
        steps.clear()
        learn(context(), method, [task])
        if threshold:
            assert method.mixture.counts == [1, 1]
            assert names_of(steps) == ["scan", "train"]
            assert [group.parameter for group in steps[1].groups] == [method.head.block]  # type: ignore[union-attr]
            assert torch.equal(method.features(probe), features)
            assert method.features_version == version
        else:
            assert method.mixture.counts == [task.index + 1, task.index + 1]
            assert names_of(steps) == ["scan", "train", "describe", "statistics"] * 2
            assert method.features_version != version
    assert passes_per_image(method) == 1


def test_evaluation_keeps_the_features_until_an_adapter_is_added(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, kept, positions = tiny_stream(), FeatureCache(), torch.arange(3)
    for threshold in (1e6, 0.0):
        method = make_sema(tiny_backbone(), threshold=threshold)
        for task in stream.tasks[:2]:
            learn(context(), method, [task])
            rows = kept.of(context(), method, stream.test, positions)
            inputs = context().transforms.test(stream.test.batch(positions)[0])
            torch.testing.assert_close(rows, method.features(inputs))
        kept = FeatureCache()


def test_statistics_are_those_of_the_finished_descriptor(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, tasks = make_sema(tiny_backbone(), expandable_share=0.5), tiny_stream().tasks
    (block,) = method.mixture.routed
    for task in tasks:
        learn(context(), method, [task])
        inputs = context().transforms.test(task.train.batch(torch.arange(len(task.train)))[0])
        losses = block.newest_loss(method.token_means(inputs)[0])
        torch.testing.assert_close(block.mean[-1].detach(), losses.mean(), rtol=1e-4, atol=0)
        torch.testing.assert_close(block.std[-1].detach(), losses.std(), rtol=1e-3, atol=0)
    assert len(block) == 3


def test_a_first_task_of_two_images_makes_nothing_new(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, (first, second, _) = make_sema(tiny_backbone()), tiny_stream().tasks
    learn(context(), method, [Task(0, first.classes, first.train.select(torch.tensor([0, 12]))), second])
    assert method.mixture.counts == [1, 1]


def test_the_criterion_is_the_least_mean_over_a_batch() -> None:
    # Two blocks with two adapters and one; batches of two images and a rest of one.
    scores = torch.tensor([[1.0, 4.0, 0.0], [3.0, 0.0, 2.0], [8.0, 9.0, 5.0]])
    assert batch_criteria(scores, [2, 1], 2).tolist() == [[2.0, 1.0], [8.0, 5.0]]


def test_the_first_batch_and_its_first_block_above_the_threshold_are_found() -> None:
    criteria = torch.tensor([[0.0, 2.5], [2.0, 2.0], [3.0, 9.0]])
    assert first_above(criteria, 2.0, 0) == (0, 1)
    assert first_above(criteria, 2.0, 1) == (2, 0)
    assert first_above(criteria, 2.6, 0) == (2, 0)
    assert first_above(criteria, 3.0, 0) == (2, 1)
    assert first_above(criteria, 2.0, 3) == (0, 1)
    assert first_above(criteria, 9.0, 0) is None


def table(grown: frozenset[int], num_batches: int, num_blocks: int, case: int) -> Tensor:
    """Return a criterion for every batch and block that depends on which blocks have grown."""
    generator = torch.Generator().manual_seed(1000 * case + sum(2**place for place in grown))
    return torch.rand(num_batches, num_blocks, generator=generator, dtype=torch.float64)


def scan_as_described(num_batches: int, num_blocks: int, case: int, threshold: float) -> list[int]:
    """Scan batch by batch and block by block; stop at a block that grows; repeat passes until one adds nothing."""
    grown: list[int] = []
    added = True
    while added:
        added = False
        for batch in range(num_batches):
            criteria = table(frozenset(grown), num_batches, num_blocks, case)[batch]
            for place in range(num_blocks):
                if criteria[place] > threshold and place not in grown:
                    grown.append(place)
                    added = True
                    break
    return grown


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.9])
def test_a_collect_after_each_growth_decides_as_scanning_batch_by_batch(
    tiny_backbone: MakeBackbone, threshold: float
) -> None:
    sizes, task, outcomes = (4, 3), TaskInfo(1, ("new",)), set()
    for case in range(25):
        method = make_sema(tiny_backbone(depth=3), threshold=threshold, scan_batch_size=1)
        method.tasks.append(("old",))
        grown: list[int] = []
        result: dict[str, Tensor] = {}
        with torch.no_grad():
            learning = method.learn(task)
            for index in itertools.count():
                try:
                    step = next(learning) if index == 0 else learning.send(result)
                except StopIteration:
                    break
                grown += [
                    place for place, count in enumerate(method.mixture.counts) if count == 2 and place not in grown
                ]
                rows = table(frozenset(grown), *sizes, case).repeat_interleave(torch.tensor(method.mixture.counts), 1)
                scattered = torch.zeros_like(rows)
                scattered[method.scan_order(task, len(rows))] = rows
                is_scan = isinstance(step, Collect) and step.name == "scan"
                result = {"values": scattered if is_scan else torch.zeros(3, 1)}
        expected = scan_as_described(*sizes, case, threshold)
        assert grown == expected
        outcomes.add(tuple(expected))
    assert len(outcomes) > 3


@pytest.mark.parametrize(
    ("share", "num_blocks", "expected"),
    [(0.25, 12, 3), (0.25, 2, 1), (0.25, 1, 1), (0.25, 6, 2), (0.07, 100, 7), (1.0, 5, 5), (1e-9, 12, 1)],
)
def test_the_last_quarter_rounded_up_can_grow(
    tiny_backbone: MakeBackbone, share: float, num_blocks: int, expected: int
) -> None:
    assert share_of_blocks(share, num_blocks) == expected
    method = make_sema(tiny_backbone(depth=num_blocks), expandable_share=share)
    assert len(method.mixture.routed) == expected
    assert method.mixture.adapters[-expected:] == method.mixture.routed
    assert len(method.mixture.adapters) == num_blocks


def test_a_run_with_growth_goes_on_after_stops_at_every_boundary(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = ["stream.num_classes=4", "method.threshold=0", "method.epochs=1", "method.descriptor_epochs=2"]
    experiment = make_experiment(str(tiny_preset), "sema", overrides)
    dataset = load_dataset(experiment.data.model_copy(update={"channels": 1}))
    monkeypatch.setattr("clare.engine.run.load_dataset", lambda *_: dataset)
    run_experiment(experiment, tmp_path / "straight", Silence())
    num_stops = 0
    for _ in range(100):
        try:
            with pytest.MonkeyPatch.context() as patch:
                stop_after_commit(patch)
                run_experiment(experiment, tmp_path / "stopped", Silence())
            break
        except Stop:
            num_stops += 1
    straight = outcome(tmp_path / "straight")
    (tensors,) = (load(tensors) for name, tensors in straight["tensors"].items() if name.startswith("model"))
    assert [len(tensors[f"mixture.expandable.{place}.down"]) for place in (0, 1)] == [2, 2]
    assert outcome(tmp_path / "stopped") == straight
    # Three steps of the first task and eight of the second at least.
    assert num_stops > 11


def stop_after_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a run as soon as it has committed a position."""
    original = RunFolder.commit

    def commit(self: RunFolder, **changes: Any) -> None:
        original(self, **changes)
        raise Stop

    monkeypatch.setattr(RunFolder, "commit", commit)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"threshold": -1}, r"'method\.threshold' got -1"),
        ({"expandable_share": 0}, r"'method\.expandable_share' got 0"),
        ({"expandable_share": 3}, r"'method\.expandable_share' got 3"),
        ({"scan_batch_size": 0}, r"'method\.scan_batch_size' got 0"),
        ({"adapter": {"scale": 0.1}}, r"no setting 'method\.adapter\.scale'.*allowed here: bottleneck, descriptor"),
        ({"treshold": 2}, r"no setting 'method\.treshold' \(did you mean 'threshold'\?\)"),
        ({"head": {"kind": "mean"}}, r"'method\.head\.kind' got 'mean'; it is trained, prototype"),
    ],
)
def test_settings_that_cannot_be_used_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build_settings(SemaSettings, values, "method")
