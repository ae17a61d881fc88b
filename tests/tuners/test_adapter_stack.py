"""Many adapters at once against one after another, and what the stack leaves of the backbone and of its rows."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import timm
import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor

from clare.backbones.vit import Backbone, build_embedded, fingerprint
from clare.errors import BackboneError
from clare.growth import make_room
from clare.tuners.adapter import AdapterSettings, FlatAdapter, initial_values
from clare.tuners.adapter_stack import AdapterStack, chunk_size_for

MakeBackbone = Callable[..., Backbone]


class OtherBlock(Block):
    """A block of a kind that nobody knows."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(num_images: int = 5) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=generator(7))


def build(**sizes: Any) -> VisionTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return build_embedded(**{"embed_dim": 24, "depth": 3, "num_heads": 2, **sizes}).eval().requires_grad_(False)


def random_rows(stack: AdapterStack, num_adapters: int) -> Tensor:
    shape = (num_adapters, stack.current.numel())
    return torch.randn(shape, generator=generator(3), dtype=stack.current.dtype)


def one_after_another(vit: VisionTransformer, settings: AdapterSettings, rows: Tensor, inputs: Tensor) -> Tensor:
    """Return the features of each adapter from a whole pass of its own."""
    adapter = FlatAdapter(vit, settings, generator()).to(rows.dtype).eval()
    features = []
    for row in rows:
        adapter.values.data.copy_(row)
        with adapter.spread():
            features.append(vit.forward_head(vit.forward_features(inputs), pre_logits=True))
    adapter.detach(vit)
    return torch.stack(features, 1)


@pytest.mark.parametrize("chunk_size", [0, 1, 2, 5, 9])
@pytest.mark.parametrize(
    "variant",
    [{}, {"init_values": 0.1, "qk_norm": True}, {"depth": 1}, {"reg_tokens": 1, "global_pool": "avg"}],
    ids=lambda variant: "-".join(variant) or "plain",
)
@torch.no_grad()
def test_a_chunk_is_as_good_as_one_pass_after_another(variant: dict[str, Any], chunk_size: int) -> None:
    vit, settings = build(**variant).double(), AdapterSettings(bottleneck=4, scale=0.7)
    stack = AdapterStack(vit, settings).double().eval()
    rows, inputs = random_rows(stack, 5), images().double()
    ours = stack.features(inputs, rows, chunk_size)
    assert ours.shape == (5, 5, 24)
    torch.testing.assert_close(ours, one_after_another(vit, settings, rows, inputs), rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_what_no_adapter_has_touched_is_computed_once() -> None:
    vit = build()
    stack = AdapterStack(vit, AdapterSettings(bottleneck=4)).eval()
    seen: dict[str, list[int]] = {}
    for name in ("patch_embed", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", "blocks.2.mlp"):
        calls = seen.setdefault(name, [])
        vit.get_submodule(name).register_forward_pre_hook(lambda _, inputs, calls=calls: calls.append(len(inputs[0])))
    stack.features(images(3), random_rows(stack, 5), 2)
    once, chunks = [3], [6, 6, 3]
    assert seen == {
        "patch_embed": once,
        "blocks.0.attn": once,
        "blocks.0.mlp": once,
        "blocks.1.attn": chunks,
        "blocks.2.mlp": chunks,
    }


@torch.no_grad()
def test_half_precision_gives_the_same_but_for_rounding() -> None:
    stack = AdapterStack(build(), AdapterSettings(bottleneck=4)).eval()
    rows = 0.1 * random_rows(stack, 3)
    expected = stack.features(images(), rows)
    with torch.autocast("cpu", torch.bfloat16):
        weights = stack.spread(rows)[0][0]
        halved = stack.features(images(), rows)
    assert weights.dtype == torch.bfloat16
    assert float((halved - expected).norm() / expected.norm()) < 0.03


@torch.no_grad()
def test_many_images_go_with_one_adapter_and_one_image_with_many() -> None:
    for num_images, chunk_size in ((1, 546), (20, 27), (10_000, 1)):
        assert chunk_size_for(torch.empty(num_images, 20, 24)) == chunk_size


def test_gradients_are_those_of_the_single_adapter() -> None:
    vit, settings = build().double(), AdapterSettings(bottleneck=4, scale=0.7, dropout=0)
    stack = AdapterStack(vit, settings).double().train()
    stack.current.data.copy_(random_rows(stack, 1)[0])
    stack.current.requires_grad_(True)
    direction = torch.randn(5, 24, generator=generator(4), dtype=torch.float64)
    features = stack.features(images().double(), stack.current[None])[:, 0]
    (ours,) = torch.autograd.grad((features * direction).sum(), stack.current)

    flat = FlatAdapter(vit, settings, generator()).double().train()
    flat.values.data.copy_(stack.current.data)
    flat.values.requires_grad_(True)
    with flat.spread():
        (expected,) = torch.autograd.grad((vit(images().double()) * direction).sum(), flat.values)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


@torch.no_grad()
def test_dropout_acts_while_training_only() -> None:
    stack = AdapterStack(build(), AdapterSettings(bottleneck=4, dropout=0.5))
    rows = random_rows(stack, 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        stack.train()
        assert not torch.equal(stack.features(images(), rows), stack.features(images(), rows))
        stack.eval()
        assert torch.equal(stack.features(images(), rows), stack.features(images(), rows))


@torch.no_grad()
def test_a_fresh_adapter_changes_nothing(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    stack = AdapterStack(vit, AdapterSettings(bottleneck=4)).eval()
    stack.draw(generator(2))
    assert torch.equal(stack.current, initial_values([24] * 2, 4, generator(2)))
    assert torch.equal(stack.features(images(), stack.current[None])[:, 0], vit(images()))


def test_kept_adapters_are_rows_that_a_fresh_one_does_not_touch(tiny_backbone: MakeBackbone) -> None:
    stack = AdapterStack(tiny_backbone().vit, AdapterSettings(bottleneck=4))
    drawn = [initial_values([24] * 2, 4, generator(seed)) for seed in range(3)]
    place = stack.current.data_ptr()
    for seed in range(3):
        if seed:
            stack.keep()
        stack.draw(generator(seed))
        assert len(stack) == seed + 1
        assert torch.equal(stack.values, torch.stack(drawn[: seed + 1]))
    assert stack.current.data_ptr() == place
    assert not any(parameter.requires_grad for parameter in stack.parameters())
    make_room(stack, {"kept": torch.zeros(1, 440)})
    assert stack.values.shape == (2, 440)


def test_the_numbers_of_an_adapter_are_those_of_the_single_one() -> None:
    with torch.device("meta"):
        vit = cast(VisionTransformer, timm.create_model("vit_base_patch16_224", num_classes=0))
    assert AdapterStack(vit, AdapterSettings(bottleneck=64)).current.numel() == 1_189_632


@torch.no_grad()
def test_the_backbone_is_left_as_it_was(tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone()
    vit, blocks, bare = backbone.vit, list(backbone.vit.blocks), backbone.vit(images())
    stack = AdapterStack(vit, AdapterSettings(bottleneck=4)).eval()
    assert set(stack.state_dict()) == {"kept", "current"}
    stack.features(images(), random_rows(stack, 3))
    assert list(vit.blocks) == blocks
    assert fingerprint(vit) == backbone.fingerprint
    assert torch.equal(vit(images()), bare)


def test_other_blocks_are_refused(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    FlatAdapter(vit, AdapterSettings(bottleneck=4), generator())
    with pytest.raises(BackboneError, match=r"block 0 .* Attached.*detach"):
        AdapterStack(vit, AdapterSettings())
    other = VisionTransformer(
        img_size=28, patch_size=7, in_chans=1, num_classes=0, embed_dim=24, depth=1, num_heads=2, block_fn=OtherBlock
    )
    with pytest.raises(BackboneError, match=r"block 0 .* OtherBlock.*timm's Block"):
        AdapterStack(other, AdapterSettings())
