"""The method in one file beside the engine: the same batches and draws, in double precision, over three tasks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from clare.data.stream import Task
from clare.engine import train
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.methods.clare import Clare, ClareSettings
from clare.registry import load_file
from clare.seeds import generator_at
from clare.steps import Learning, TaskInfo
from clare.testing import world

FILE = Path(__file__).parents[2] / "examples/clare_in_one_file.py"
NUM_TASKS, HIDDEN = 3, 4
TOLERANCE = 1e-12
# Strong decay and momentum, so that a wrong step shows; the last of three batches is short.
RECIPE: dict[str, Any] = {
    "sparsity": 0.8,
    "probe_epochs": 2,
    "epochs": 2,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "weight_decay": 5e-2,
    "penalty_weight": 1e-4,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "the default": {},
    "constant share": {"capacity_aware": False, "constant_share": 0.3},
    "constant share, from the start": {"capacity_aware": False, "constant_share": 0.3, "origin": "start"},
    "constant share, as printed": {"capacity_aware": False, "constant_share": 0.3, "merge": "literal"},
    "one stage": {"two_stage": False},
    "one stage, values": {"two_stage": False, "origin": "zero"},
    "no mask": {"mask": "none"},
    "no mask, as printed": {"mask": "none", "merge": "literal"},
    "random mask": {"mask": "random"},
    "independent": {"start": "initial"},
    "l1-subgradient": {"penalty": "l1-subgradient"},
    "as the text reads": {"penalty": "l1-subgradient", "probe_decay": "zero"},
    "l2": {"penalty": "l2"},
    "no penalty": {"penalty_weight": 0.0},
    "strong penalty": {"penalty_weight": 0.3},
    "strong penalty, unmoved": {"penalty_weight": 0.3, "select_unmoved": True},
    "other sparsity": {"sparsity": 0.95},
    "probe keeps rows": {"probe_head": "keep"},
    "probe freezes rows": {"probe_head": "frozen"},
    "all classes": {"contrast": "seen"},
    "all classes, old rows trained": {"contrast": "seen-trained"},
    "twins": {},
}
"""The default, every ablation of the paper, and every word for what its text leaves open."""

Epochs = list[list[tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class Learnt:
    """What a task was fed, and what is there after it."""

    epochs: Epochs
    rows: Tensor
    shared: Tensor
    claim: Tensor
    phi: Tensor


@dataclass(frozen=True)
class Recording:
    """The engine's run of a variant."""

    initial: Tensor
    tasks: list[Learnt]


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    """Compute in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def initial_of(method: Clare, variant: str) -> Tensor:
    """Return the initial values; twins are hidden units that are alike, whose scores tie."""
    values = method.adapter.initial.clone()
    if variant == "twins":
        down = values.view(method.adapter.num_blocks, -1)[:, : HIDDEN * 24].unflatten(1, (HIDDEN, 24))
        down[:, 1::2] = down[:, ::2].clone()
    return values


@cache
def recorded(variant: str) -> Recording:
    """Let the engine learn three tasks, and note all that it was fed."""
    head, adapter = {"kind": "trained"}, {"bottleneck": HIDDEN, "dropout": 0.0}
    values = {**RECIPE, **VARIANTS[variant], "batch_size": 5, "head": head, "adapter": adapter}
    method = Clare(world.tiny_backbone(), ClareSettings.model_validate(values), 0).double()
    method.adapter.initial.copy_(initial_of(method, variant))
    method.adapter.values.data.copy_(method.adapter.initial)
    tasks = world.tiny_stream(num_tasks=NUM_TASKS, num_train=6).tasks
    return Recording(method.adapter.initial.clone(), [learnt(method, task) for task in tasks])


def learnt(method: Clare, task: Task) -> Learnt:
    """Teach the engine's method a task."""
    epochs: Epochs = []
    rows: list[Tensor] = []
    drawn_batches, open_rows = train.drawn_batches, method.open_rows

    def noted_batches(*arguments: Any) -> Iterator[Any]:
        epochs.append([])
        for batch, images, labels in drawn_batches(*arguments):
            is_real = batch.weights > 0
            epochs[-1].append((images.double()[is_real], labels[is_real]))
            yield batch, images.double(), labels

    def noted_rows(info: TaskInfo) -> Learning:
        yield from open_rows(info)
        rows.append(method.head.block.data.clone())

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(train, "drawn_batches", noted_batches)
        monkeypatch.setattr(method, "open_rows", noted_rows)
        learn_task(world.tiny_context(), method, task, Journal())
    claim = torch.zeros_like(method.ledger.free)
    claim[method.ledger.claim_of(task.index)[0]] = True
    return Learnt(epochs, rows[0], method.adapter.values.data.clone(), claim, method.head.rows.data.clone())


def one_file(mistake: tuple[str, str] | None = None) -> Any:
    """Return the file as a module, with one piece of its text replaced by a mistake."""
    text = FILE.read_text()
    if mistake is not None:
        assert text.count(mistake[0]) == 1, f"the file does not say this once: {mistake[0]}"
        text = text.replace(*mistake)
    module = ModuleType("clare_in_one_file")
    exec(compile(text, FILE.name, "exec"), module.__dict__)
    return module


def compare(variant: str, mistake: tuple[str, str] | None = None) -> None:
    """Feed the file what the engine was fed, and ask for the same coordinates and numbers after every task."""
    module, recording = one_file(mistake), recorded(variant)
    words = {**RECIPE, **VARIANTS[variant], "bottleneck": HIDDEN, "dropout": 0.0}
    recipe = module.Recipe(**words)
    method = module.Clare(world.tiny_backbone().vit, recording.initial, recipe)
    for index, task in enumerate(recording.tasks):

        def batches(stage: str, epoch: int, epochs: Epochs = task.epochs) -> list[tuple[Tensor, Tensor]]:
            return epochs[epoch if stage == "probe" else epoch - recipe.epochs]

        method.learn(task.rows, batches, generator_at(0, index, "mask"))
        assert torch.equal(method.claims[-1], task.claim), f"task {index + 1} claims other coordinates"
        assert float((method.shared - task.shared).abs().max()) < TOLERANCE, f"adapters differ after task {index + 1}"
        assert float((method.phi - task.phi).abs().max()) < TOLERANCE, f"rows differ after task {index + 1}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_learns_what_the_engine_learns(variant: str) -> None:
    compare(variant)


FRESH = "[torch.zeros_like(values) for values in state]"
KEPT = f"self.__dict__['kept'] if stage == 'train' else self.__dict__.setdefault('kept', {FRESH})"
EXACT = "torch.zeros_like(moved).index_fill(0, torch.where(moved, scores, -1.0).topk(k).indices, True)"
SELECT = "select((alpha - origin).abs(), candidates, budget, recipe.select_unmoved)"
HALVES = "zip((alpha - origin).abs().chunk(2), candidates.chunk(2))"
WITHIN = "within the mask.\n            "
STREAM = "x = x + block.ls2(block.mlp(block.norm2(x)))"
MISTAKES: dict[str, tuple[str, str] | tuple[str, str, str]] = {
    "momentum is kept between the stages": (f"momenta = self.recipe, {FRESH}", f"momenta = self.recipe, {KEPT}"),
    "frozen coordinates decay": ("state[0].copy_(torch.where(mask, moved, state[0]))", "state[0].copy_(moved)"),
    "claimed coordinates train in Stage 1": ("self.free if has_limits else ", ""),
    "no reset": (f"{WITHIN}alpha = start.clone()\n", "\n"),
    "no reset of the rows": ("[new.clone(), old.clone()]", "[new, old]"),
    "the penalty is a mean": ("pull + recipe.penalty_weight", "pull + 1e-4 / len(values)", "l1-subgradient"),
    "the threshold forgets momentum": (" / (1 - recipe.momentum)", ""),
    "Stage 1 decays towards zero": ('if recipe.probe_decay == "initial" else pull', "if False else pull"),
    "Stage 2 has a penalty": ("chosen, batches, None)", "chosen, batches, origin)"),
    "Stage 2 trains all that is free": ("[alpha, new, old], chosen,", "[alpha, new, old], candidates,"),
    "the budget is of all coordinates": ("share * num)", "share * len(candidates))"),
    "the budget is rounded down": ("round(share * num)", "int(share * num)"),
    "a budget for each layer": (SELECT, f"torch.cat([select(s, c, budget // 2, False) for s, c in {HALVES}])"),
    "ties are cut": ("moved & (scores >= tau)", EXACT, "twins"),
    "what did not move is chosen": ("if unmoved else candidates & (scores > 0)", "", "strong penalty"),
    "movement is measured from the start": ('{"initial": self.alpha_0,', '{"initial": start,', "constant share"),
    "deltas are added where masks overlap": ('if recipe.merge == "state"', "if False", "no mask"),
    "nothing is frozen": ("self.free & ~chosen", "self.free"),
    "every task starts at the initial values": ('if recipe.start == "shared"', "if False"),
    "rows have a length": ("F.normalize(phi, dim=1).T\n", "phi.T\n"),
    "the loss sees all classes": ('if recipe.contrast == "task"', "if False"),
    "the rate does not fall": ("math.cos(math.pi * epoch / epochs)", "math.cos(0)"),
    "the adapter acts before the MLP": (f"{STREAM} + adapter", f"x = x + adapter\n        {STREAM}"),
}
"""What the file says, what a mistaken one says, and the variant that shows it where it is not the default."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(mistake: str) -> None:
    right, wrong, *variant = MISTAKES[mistake]
    with pytest.raises(AssertionError, match=r"claims other coordinates|differ after task"):
        compare(*variant or ["the default"], mistake=(right, wrong))


def test_the_tie_of_the_twins_lies_at_the_threshold() -> None:
    """More coordinates are claimed than the budget, so that the rule for ties decides."""
    budget = round((1 - RECIPE["sparsity"]) * len(recorded("twins").initial))
    assert int(recorded("twins").tasks[0].claim.sum()) > budget


def test_its_words_are_the_settings_and_its_numbers_their_defaults() -> None:
    recipe, settings = one_file().Recipe(), ClareSettings()
    elsewhere = {
        "bottleneck": settings.adapter.bottleneck,
        "adapter_scale": settings.adapter.scale,
        "dropout": settings.adapter.dropout,
        "cosine_scale": settings.head.scale,
    }
    assert {field.name: getattr(recipe, field.name) for field in fields(recipe)} == {
        field.name: elsewhere.get(field.name, getattr(settings, field.name, None)) for field in fields(recipe)
    }


@pytest.mark.slow
def test_it_learns_embedded_drawings(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_default_dtype(torch.float32)
    load_file(FILE, "which is the method in one file").demonstrate(num_tasks=2, num_classes=2)
    lines = capsys.readouterr().out.splitlines()
    told = [re.fullmatch(r"task \d: (.*)% of \d classes; (\d+) coordinates are free", line) for line in lines]
    (first, free), (second, left) = [(float(match[1]), int(match[2])) for match in told if match]
    # A draw among two classes, and among four, would be 50 and 25 %.
    assert first > 60
    assert second > 35
    assert left < free < 75_072


def test_it_is_short_and_imports_nothing_of_the_package() -> None:
    lines = FILE.read_text().splitlines()
    assert len(lines) <= 200
    imported = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert imported == {"collections", "dataclasses", "math", "pathlib", "zipfile", "timm", "torch"}
