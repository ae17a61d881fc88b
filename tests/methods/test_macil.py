"""MACIL's metrics, losses, updates and moves are those of the authors' code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import learn, phases_of
from realign_golden import realigned
from safetensors.torch import load_file

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.heads.drift import kernel_moves
from clare.heads.realigned import RealignedSettings
from clare.methods.macil import Macil, MacilSettings, metric_roots, pair_changes, patch_changes

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "macil.safetensors")
MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_macil(backbone: Backbone, **changes: Any) -> Macil:
    head = {"align_epochs": 1, "align_samples": 4}
    values = {"rank": 3, "first_epochs": 2, "epochs": 2, "batch_size": 8, "head": head, **changes}
    return Macil(backbone, MacilSettings.model_validate(values), 0)


def test_metrics_are_the_recorded_ones() -> None:
    roots = metric_roots(GOLDEN["train"], GOLDEN["train_labels"], 3)
    inverses = roots.mT @ roots - 1e-6 * torch.eye(4)
    torch.testing.assert_close(inverses.float(), GOLDEN["inverses"], rtol=0, atol=1e-5)


def test_changes_of_pairs_and_patches_are_the_recorded_ones() -> None:
    new = GOLDEN["new"].clone().requires_grad_(True)
    roots = metric_roots(GOLDEN["train"], GOLDEN["train_labels"], 3)
    pairs = pair_changes(GOLDEN["old"], new, GOLDEN["labels"], roots)
    torch.testing.assert_close(pairs.mean(), GOLDEN["pairs"], rtol=0, atol=1e-5)
    (gradient,) = torch.autograd.grad(pairs.mean(), new)
    torch.testing.assert_close(gradient, GOLDEN["pairs_gradient"], rtol=0, atol=1e-5)
    patches = GOLDEN["new_patches"].clone().requires_grad_(True)
    changes = patch_changes(GOLDEN["old_patches"], patches, GOLDEN["new"])
    torch.testing.assert_close(changes.mean(), GOLDEN["patches"], rtol=0, atol=1e-5)
    (gradient,) = torch.autograd.grad(changes.mean(), patches)
    torch.testing.assert_close(gradient, GOLDEN["patches_gradient"], rtol=0, atol=1e-5)


def test_changes_by_hand() -> None:
    metric = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    roots = torch.linalg.cholesky(metric).mT.expand(2, 2, 2)
    old = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    new = torch.tensor([[1.0, 0.2], [0.0, 1.0], [0.0, 1.0]])
    labels = torch.tensor([0, 0, 1])
    assert float(pair_changes(old, new, labels, roots).mean()) == pytest.approx(0.026553, abs=1e-5)
    # Padding repeats an image behind all others: its pairs are charged to it.
    padded = pair_changes(*(torch.cat([part, part[:1]]) for part in (old, new, labels)), roots)
    torch.testing.assert_close(padded[:3], pair_changes(old, new, labels, roots))
    patches = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    turned = patch_changes(torch.tensor([[[0.8, 0.6], [0.0, 1.0]]]), patches, torch.ones(1, 2))
    assert float(turned) == pytest.approx(0.079057, abs=1e-6)


def test_nothing_has_changed_before_a_task_is_trained() -> None:
    rows = GOLDEN["new"].clone().requires_grad_(True)
    roots = metric_roots(GOLDEN["train"], GOLDEN["train_labels"], 3)
    patches = GOLDEN["new_patches"].clone().requires_grad_(True)
    pairs = pair_changes(rows.detach(), rows, GOLDEN["labels"], roots)
    changes = patch_changes(patches.detach(), patches, rows)
    assert not pairs.any()
    assert not changes.any()
    for gradient in torch.autograd.grad((pairs.sum() + changes.sum()), (rows, patches), allow_unused=True):
        assert gradient is not None
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(("num_updates", "name"), [(1, "attended_first"), (2, "attended")])
def test_updates_of_keys_and_values_are_the_recorded_ones(
    tiny_backbone: MakeBackbone, num_updates: int, name: str
) -> None:
    backbone = tiny_backbone()
    attention = backbone.vit.blocks[0].attn
    attention.load_state_dict({k[5:]: tensor for k, tensor in GOLDEN.items() if k.startswith("attn.")})
    method = make_macil(backbone)
    for task in range(num_updates):
        method.lora.down.data[0], method.lora.up.data[0] = GOLDEN["down"][task], GOLDEN["up"][task]
        method.merge()
    with method.lora.active(method.update()):
        torch.testing.assert_close(attention(GOLDEN["x"]), GOLDEN[name], rtol=0, atol=1e-5)


def test_means_move_as_recorded() -> None:
    moves = kernel_moves(GOLDEN["before"], GOLDEN["after"], GOLDEN["moved_means"], 1.0)
    torch.testing.assert_close(moves, GOLDEN["moves"], rtol=0, atol=1e-5)


def test_rows_are_trained_again_as_recorded() -> None:
    settings = MacilSettings().head
    assert isinstance(settings, RealignedSettings)
    rows = realigned(settings, GOLDEN)
    assert float((rows - GOLDEN["start"]).abs().max()) > 0.05
    torch.testing.assert_close(rows, GOLDEN["aligned"], rtol=0, atol=1e-5)


def test_a_task_looks_at_the_network_before_it(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    first, second = tiny_stream().tasks[:2]
    apart = {}
    for weight in (0.0, 3.0):
        method = make_macil(tiny_backbone(), pair_weight=weight, patch_weight=weight, epochs=4)
        phases = phases_of(method)
        learn(context(), method, [first])
        old = method.head.means.clone()
        images, _ = second.train.batch(torch.arange(len(second.train)))
        seen = context().transforms.test(images)
        before = method.features(seen)
        learn(context(), method, [second])
        assert [(phase.name, phase.epochs) for phase in phases] == [("train", 2), ("train", 4), ("align", 1)]
        after = method.features(seen)
        moves = kernel_moves(before, after, old, 1.0)
        torch.testing.assert_close(method.head.means[:2], old + moves, rtol=0, atol=1e-5)
        apart[weight] = float((after - before).norm())
        assert float(method.lora.up.abs().max()) == 0
    assert 0 < apart[3.0] < apart[0.0]


def test_updates_leave_the_directions_that_are_kept(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_macil(tiny_backbone(), kept_directions=5)
    learn(context(), method, tiny_stream().tasks[:2])
    for block, changed in zip(method.backbone.blocks, method.merged, strict=True):
        weight = block.attn.qkv.inner.weight.chunk(3)[2]
        _, _, right = torch.linalg.svd(weight)
        assert float(changed[1].abs().max()) > 1e-4
        torch.testing.assert_close((weight + changed[1]) @ right[:5].T, weight @ right[:5].T, rtol=0, atol=1e-6)


def test_a_plain_backbone_with_its_weights_has_its_features(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, images = make_macil(tiny_backbone()), torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    learn(context(), method, tiny_stream().tasks[:2])
    plain = tiny_backbone().vit
    assert not torch.allclose(plain(images), method.features(images), atol=1e-3)
    plain.load_state_dict(method.deployed().weights, strict=False)
    torch.testing.assert_close(plain(images), method.features(images), rtol=0, atol=1e-5)
