"""SEMA against numbers recorded from the official code: both phases, the statistics, every scan and every decision.

Where ours differs by choice the test says so: rows of other classes do not decay here, and the statistics of a
descriptor come from a sweep after its training instead of a buffer that fills while it trains.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from clare.backbones.vit import freeze
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.files import read_tensors
from clare.methods.base import prepare
from clare.methods.sema import Sema, SemaSettings
from clare.steps import Collect, Phase, TaskInfo
from clare.tuners.mixture import BlockAdapters, RoutedAdapters

GOLDEN = read_tensors(Path(__file__).parents[1] / "golden" / "sema.safetensors")
CAPACITY = 30
RECIPE = {"learning_rate": 0.3, "descriptor_learning_rate": 0.1, "weight_decay": 5e-3, "batch_size": 8}
OFFICIAL = {
    "down.weight": "down",
    "down.bias": "down_bias",
    "up.weight": "up",
    "up.bias": "up_bias",
    "rd.encoder.weight": "encoder",
    "rd.encoder.bias": "encoder_bias",
    "rd.decoder.weight": "decoder",
    "rd.decoder.bias": "decoder_bias",
    "router.weight": "router",
    "router.bias": "router_bias",
    "new_router.weight": "router",
    "new_router.bias": "router_bias",
}


def assert_close(ours: Tensor, recorded: Tensor) -> None:
    torch.testing.assert_close(ours.detach(), recorded, rtol=1e-5, atol=1e-5)


def inputs(name: str) -> Tensor:
    return GOLDEN[f"{name}.images"].float() / 32 - 4


def keep_last(record: Tensor, values: Tensor) -> Tensor:
    """Put values into the official buffer: what does not fit is lost until it is full, then the oldest leave."""
    room = CAPACITY - len(record)
    return torch.cat([record, values[:room]]) if room else torch.cat([record, values])[-CAPACITY:]


@dataclass
class Replay:
    """SEMA on the recorded backbone, led through the recorded run."""

    method: Sema
    run: str
    records: list[Tensor] = field(default_factory=list)
    num_scans: int = 0
    trained: list[list[int]] = field(default_factory=list)

    @property
    def first_expandable(self) -> int:
        """The first block that can get more adapters."""
        return len(self.method.mixture.fixed)

    def parts(self, prefix: str) -> list[tuple[Tensor, Tensor]]:
        """Pair our entries with the recorded ones of the blocks under a prefix; routers of other blocks do nothing."""
        pairs = []
        for key, recorded in GOLDEN.items():
            name = key.removeprefix(f"{prefix}.block")
            if name == key:
                continue
            index, part, *rest = name.split(".")
            is_router = "router" in part
            ours = OFFICIAL.get(".".join([part, *rest] if is_router else rest))
            if ours is None or (is_router and int(index) < self.first_expandable):
                continue
            block = self.method.mixture.adapters[int(index)]
            entry = block.get_parameter(ours).data[-1 if is_router else int(part.removeprefix("adapter"))]
            wanted = recorded.T if ours == "up" else recorded
            pairs.append((entry, wanted[0] if is_router else wanted))
        return pairs

    def learn(self, task: int, prefix: str, train: str) -> None:
        """Drive the method through a task; `train` is where its trainings were recorded."""
        self.trained.clear()
        learning = self.method.learn(TaskInfo(task, tuple(f"{task}.{label}" for label in range(3))))
        step = next(learning, None)
        while step is not None:
            result: dict[str, Tensor] = {}
            if isinstance(step, Phase):
                self.train(step, task, train.format(n=len(self.trained) - (step.name == "describe")))
            else:
                assert isinstance(step, Collect)
                assert step.view == "train"
                result = {"values": self.collect(step, task, prefix)}
            try:
                step = learning.send(result)
            except StopIteration:
                step = None
        self.method.tasks.append(tuple(f"{task}.{label}" for label in range(3)))

    def train(self, phase: Phase, task: int, prefix: str) -> None:
        """Take the three recorded steps of a phase, from the recorded start."""
        functional = phase.name == "train"
        where = f"{prefix}.{'func' if functional else 'rd'}"
        blocks = [block for block in self.method.mixture.routed if self.is_trained(phase, block)]
        if functional:
            self.begin(task, prefix, len(blocks))
            self.trained.append([i for i, block in enumerate(self.method.mixture.routed) if block in blocks])
        places = self.trained[-1]
        step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
        step.optimizer.set_rate(phase.optimizer.learning_rate)
        self.method.train()
        for group in phase.groups:
            group.parameter.requires_grad_(True)
        for number in range(3):
            images, labels = inputs(f"task{task}.step{number}"), GOLDEN[f"task{task}.step{number}.labels"] - 3 * task
            recorded = f"{where}.step{number}"
            if places:
                losses = self.method.newest_losses(images, places).detach()
                assert_close(losses.mean(0).sum(), GOLDEN[f"{recorded}.rd_loss"])
                self.records = [keep_last(*pair) for pair in zip(self.records, losses.T, strict=True)]
            if functional:
                logits = self.method.head.block_logits(self.method.features(images))
                assert_close(logits, GOLDEN[f"{recorded}.logits"][:, 3 * task : 3 * task + 3])
            step.total.zero_()
            step(images, labels, torch.ones(8), 8)
            assert_close(step.total / 8, GOLDEN[f"{recorded}.{'loss' if functional else 'rd_loss'}"])
        for group in phase.groups:
            group.parameter.requires_grad_(False)
        self.method.eval()
        self.check_after(where, task, functional)

    def is_trained(self, phase: Phase, block: BlockAdapters) -> bool:
        """Tell whether a phase trains anything of a block."""
        own = {id(parameter) for parameter in block.parameters()}
        return any(id(group.parameter) in own for group in phase.groups)

    def begin(self, task: int, prefix: str, num_blocks: int) -> None:
        """Start a training as recorded: the drawn values, empty buffers, and the head as it was."""
        for ours, recorded in self.parts(f"{prefix}.init"):
            ours.copy_(recorded)
        self.records = [torch.zeros(0) for _ in range(num_blocks)]
        if not self.trained:
            before = f"{self.run}task0.func.after" if task else f"{prefix}.init"
            self.method.head.block.data.copy_(head_rows(before)[3 * task : 3 * task + 3])

    def check_after(self, where: str, task: int, functional: bool) -> None:
        """Compare everything that the phase's optimiser held."""
        pairs = self.parts(f"{where}.after")
        assert bool(pairs) == bool(self.trained[-1])
        for ours, recorded in pairs:
            assert_close(ours, recorded)
        if functional:
            assert_close(self.method.head.block.data, head_rows(f"{where}.after")[3 * task : 3 * task + 3])
        for place, record in zip(self.trained[-1], self.records, strict=True):
            block = self.first_expandable + place
            number = len(self.method.mixture.routed[place]) - 1
            assert_close(record, GOLDEN[f"{where}.after.block{block}.adapter{number}.record"])

    def collect(self, step: Collect, task: int, prefix: str) -> Tensor:
        """Return the official buffers as the statistics' losses, or the distances of a scan in our order."""
        if step.name == "statistics":
            return torch.stack(self.records, 1)
        images = torch.cat([inputs(f"task{task}.step{number}") for number in range(3)])
        rows = step.function(images)
        self.check_scans(images, prefix)
        scattered = torch.zeros_like(rows)
        scattered[self.method.scan_order(TaskInfo(task), len(rows))] = rows
        return scattered

    def check_scans(self, images: Tensor, prefix: str) -> None:
        """Compare losses and distances with the recorded scans, as far as the adapters stay as they are."""
        while f"{prefix}.scan{self.num_scans}.added" in GOLDEN:
            where = f"{prefix}.scan{self.num_scans}"
            batch = images[12 * (self.num_scans % 2) :][:12]
            self.num_scans += 1
            self.check_descriptors(batch, where)
            if GOLDEN[f"{where}.added"].any():
                return

    def check_descriptors(self, images: Tensor, where: str) -> None:
        """Compare losses and distances of every recorded descriptor."""
        means, num_checked = self.method.token_means(images), 0
        for place, (block, mean) in enumerate(zip(self.method.mixture.routed, means, strict=True)):
            for number, (loss, distance) in enumerate(
                zip(block.description_losses(mean).T, block.novelty(mean).T, strict=True)
            ):
                key = f"{where}.block{self.first_expandable + place}.adapter{number}"
                if f"{key}.z" in GOLDEN:
                    assert_close(loss, GOLDEN[f"{key}.rd_loss"])
                    assert_close(distance, GOLDEN[f"{key}.z"])
                    num_checked += 1
        # Of the late run only the decisions were recorded.
        assert num_checked or ".late." in where

    def check_test(self, where: str) -> None:
        """Compare features, routing and descriptors on the test images."""
        images = inputs("test")
        assert_close(self.method.features(images), GOLDEN[f"{where}.features"])
        self.check_descriptors(images, where)
        mixture, seen = self.method.mixture, list[Tensor]()
        original = mixture.branch
        mixture.branch = lambda index, x: (seen.append(x), original(index, x))[1]  # type: ignore[assignment, method-assign]
        means = self.method.token_means(images)
        del mixture.branch
        for index, (block, x) in enumerate(zip(mixture.adapters, seen, strict=True)):
            for number in range(len(block)):
                alone = F.one_hot(torch.tensor(number), len(block)).float().expand(8, -1)
                assert_close(block.mix(x, alone)[:, 0], GOLDEN[f"{where}.block{index}.adapter{number}.out_cls"])
            if isinstance(block, RoutedAdapters):
                mean = means[index - self.first_expandable]
                assert_close(mean, GOLDEN[f"{where}.block{index}.input_mean"])
                assert_close(block.shares(mean), GOLDEN[f"{where}.block{index}.mix"])


def head_rows(prefix: str) -> Tensor:
    """Return the recorded head as rows with their biases behind them."""
    return torch.cat([GOLDEN[f"{prefix}.head.weight"], GOLDEN[f"{prefix}.head.bias"][:, None]], 1)


def decayed(rows: Tensor, num_steps: int = 3) -> Tensor:
    """Return rows after steps of SGD without gradient: what the official optimiser does to other tasks' classes."""
    momentum = torch.zeros_like(rows)
    for _ in range(num_steps):
        momentum = 0.9 * momentum + 5e-3 * rows
        rows = rows - 0.3 * momentum
    return rows


def make_replay(threshold: float, run: str = "") -> Replay:
    """Return the method before its first task on the recorded backbone."""
    vit = cast(
        VisionTransformer,
        timm.create_model(
            "vit_tiny_patch16_224", num_classes=0, img_size=28, patch_size=7, embed_dim=32, depth=2, num_heads=4
        ),
    )
    vit.load_state_dict({k.removeprefix("backbone."): v for k, v in GOLDEN.items() if k.startswith("backbone.")})
    settings: dict[str, Any] = {
        **RECIPE,
        "adapter": {"bottleneck": 4, "descriptor": 6},
        "expandable_share": 1.0 if run else 0.25,
        "threshold": threshold,
        "scan_batch_size": 12,
        "epochs": 1,
        "descriptor_epochs": 1,
    }
    method = Sema(freeze(vit, None), SemaSettings.model_validate(settings), 0)
    prepare(method, 2, 3)
    return Replay(method, run)


@pytest.mark.parametrize(
    ("version", "threshold", "counts"),
    [("expand", 0.5, [2]), ("late", 2.4, [2]), ("keep", 3.0, [1]), ("both", 0.5, [2, 2])],
)
@torch.no_grad()
def test_the_recorded_run_comes_out(version: str, threshold: float, counts: list[int]) -> None:
    run = "both." if version == "both" else ""
    replay = make_replay(threshold, run)
    method = replay.method
    replay.learn(0, f"{run}task0", f"{run}task0")
    for place, block in enumerate(method.mixture.routed):
        statistics = f"{run}task0.rd.after.block{replay.first_expandable + place}.adapter0"
        assert_close(block.mean[0], GOLDEN[f"{statistics}.mean"])
        assert_close(block.std[0], GOLDEN[f"{statistics}.std"])
    replay.check_test(f"{run}task0.test")
    assert_close(method(inputs("test")), GOLDEN[f"{run}task0.test.logits"])

    # Apart from its scans the late run is the expanding one.
    source = {"both": "both.task1", "late": "task1.expand"}.get(version, f"task1.{version}")
    scans = run + ("task1" if run else f"task1.{version}")
    replay.learn(1, scans, f"{source}.train{{n}}")
    assert method.mixture.counts == counts
    assert replay.trained == ([[]] if version == "keep" else [[place] for place in range(len(counts))])
    # What is left were scans that could add nothing any more; ours does not run them.
    task = torch.cat([inputs(f"task1.step{number}") for number in range(3)])
    replay.check_scans(task, scans)
    assert f"{scans}.scan{replay.num_scans}.added" not in GOLDEN
    for place, block in enumerate(method.mixture.routed):
        if len(block) == 2:
            index = replay.first_expandable + place
            assert_close(block.router, GOLDEN[f"{source}.end.block{index}.router.weight"])
            assert_close(block.router_bias, GOLDEN[f"{source}.end.block{index}.router.bias"])
    check_logits(replay, source, f"{run}task0.func.after")


def check_logits(replay: Replay, source: str, before: str) -> None:
    """Compare the logits of all classes once the old rows have decayed as the official ones do."""
    replay.check_test(f"{source}.test")
    rows = head_rows(before)[:3]
    assert_close(replay.method.head.rows[:3], rows)
    for number in range(len(replay.trained)):
        rows = decayed(rows)
        assert_close(rows, head_rows(f"{source}.train{number}.func.after")[:3])
    replay.method.head.rows.data[:3] = rows
    assert_close(replay.method(inputs("test")), GOLDEN[f"{source}.test.logits"])
