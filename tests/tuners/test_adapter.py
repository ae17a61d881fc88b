"""The flat adapter against AdaptFormer written out by hand, and what it leaves of the backbone."""

import math
from collections.abc import Callable
from typing import cast

import pytest
import timm
import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor

from clare.backbones.attach import Attached
from clare.backbones.vit import Backbone, build_embedded, fingerprint
from clare.errors import BackboneError
from clare.tuners.adapter import AdapterSettings, FlatAdapter, initial_values

MakeBackbone = Callable[..., Backbone]


class OtherBlock(Block):
    """A block of a kind that nobody knows."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(num_images: int = 5, seed: int = 7) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=generator(seed))


def tokens(vit: VisionTransformer, adapter: FlatAdapter, inputs: Tensor) -> Tensor:
    """Return all tokens of the adapted backbone, so that no coordinate of the last block is out of play."""
    with adapter.spread():
        outputs: Tensor = vit.forward_features(inputs)
    return outputs


def block_weights(flat: Tensor, index: int, width: int, hidden: int) -> tuple[Tensor, ...]:
    """Cut one block's down-projection, its bias, up-projection and its bias out of the flat values."""
    size = 2 * width * hidden + hidden + width
    block = flat[index * size : (index + 1) * size]
    down, down_bias, up, up_bias = torch.split(block, [hidden * width, hidden, width * hidden, width])
    return down.reshape(hidden, width), down_bias, up.reshape(width, hidden), up_bias


def adaptformer(vit: VisionTransformer, flat: Tensor, settings: AdapterSettings, inputs: Tensor) -> Tensor:
    """Compute AdaptFormer's tokens with plain matrix products; the branch reads the stream before the MLP's norm."""
    x = vit._pos_embed(vit.patch_embed(inputs))
    for index, plain in enumerate(vit.blocks):
        block = cast(Block, plain)
        down, down_bias, up, up_bias = block_weights(flat, index, x.shape[-1], settings.bottleneck)
        x = x + block.ls1(block.attn(block.norm1(x)))
        hidden = (x @ down.T + down_bias).clamp(min=0)
        x = x + block.ls2(block.mlp(block.norm2(x))) + settings.scale * (hidden @ up.T + up_bias)
    result: Tensor = vit.norm(x)
    return result


@pytest.mark.parametrize(("embed_dim", "depth", "bottleneck"), [(24, 2, 4), (16, 1, 1), (32, 3, 40)])
def test_the_number_of_coordinates(tiny_backbone: MakeBackbone, embed_dim: int, depth: int, bottleneck: int) -> None:
    vit = tiny_backbone(embed_dim=embed_dim, depth=depth).vit
    adapter = FlatAdapter(vit, AdapterSettings(bottleneck=bottleneck), generator())
    assert adapter.values.shape == (depth * (2 * embed_dim * bottleneck + bottleneck + embed_dim),)
    assert adapter.initial.shape == adapter.values.shape
    assert [name for name, _ in adapter.named_parameters()] == ["values"]
    assert tokens(vit, adapter, images(2)).shape == (2, 17, embed_dim)


def test_vit_base_with_bottleneck_64_has_the_published_number() -> None:
    with torch.device("meta"):
        vit = cast(VisionTransformer, timm.create_model("vit_base_patch16_224", num_classes=0))
    adapter = FlatAdapter(vit, AdapterSettings(bottleneck=64), generator())
    assert adapter.values.numel() == 1_189_632


@pytest.mark.parametrize("layer_scale", [None, 0.1])
def test_a_fresh_adapter_changes_nothing(layer_scale: float | None) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vit = build_embedded(embed_dim=24, depth=3, num_heads=2, init_values=layer_scale).eval()
    with torch.no_grad():
        bare = vit(images())
        adapter = FlatAdapter(vit, AdapterSettings(), generator()).eval()
        with adapter.spread():
            assert torch.equal(vit(images()), bare)
        adapter.values.add_(0.01)
        with adapter.spread():
            assert not torch.equal(vit(images()), bare)


@pytest.mark.parametrize("layer_scale", [None, 0.05])
@pytest.mark.parametrize(("embed_dim", "depth", "bottleneck"), [(24, 2, 4), (48, 3, 16)])
def test_forward_is_adaptformer(embed_dim: int, depth: int, bottleneck: int, layer_scale: float | None) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        vit = build_embedded(embed_dim=embed_dim, depth=depth, num_heads=2, init_values=layer_scale).double().eval()
    settings = AdapterSettings(bottleneck=bottleneck, scale=0.7)
    adapter = FlatAdapter(vit, settings, generator()).double().eval()
    flat = torch.randn(adapter.values.numel(), generator=generator(3), dtype=torch.float64)
    inputs = images().double()
    with torch.no_grad():
        adapter.values.copy_(flat)
        ours = tokens(vit, adapter, inputs)
        adapter.detach(vit)
        torch.testing.assert_close(ours, adaptformer(vit, flat, settings, inputs), rtol=1e-10, atol=1e-10)


def test_the_branch_joins_outside_layer_scale() -> None:
    """With a LayerScale of nearly nothing the MLP is silent, but the adapter is not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vit = build_embedded(embed_dim=24, depth=1, num_heads=2, init_values=1e-12).eval()
    adapter = FlatAdapter(vit, AdapterSettings(bottleneck=4, scale=0.5), generator()).eval()
    x = torch.randn(2, 17, 24, generator=generator(5))
    with torch.no_grad():
        adapter.values[-24:] = 2.0
        with adapter.spread():
            torch.testing.assert_close(vit.blocks[0](x), x + 0.5 * 2.0)


def gradient(vit: VisionTransformer, adapter: FlatAdapter) -> Tensor:
    """Return the gradient of a random linear function of all tokens."""
    adapter.values.requires_grad_(True)
    outputs = tokens(vit, adapter, images(8))
    weights = torch.randn(outputs.shape, generator=generator(9))
    (values,) = torch.autograd.grad((outputs * weights).sum(), adapter.values)
    return values


def test_gradients_reach_the_up_projection_first_and_everything_after_one_step(tiny_backbone: MakeBackbone) -> None:
    vit, settings = tiny_backbone().vit, AdapterSettings(bottleneck=4, dropout=0)
    adapter = FlatAdapter(vit, settings, generator())
    first = gradient(vit, adapter)
    for index in range(2):
        down, down_bias, up, up_bias = block_weights(first, index, 24, 4)
        assert not down.any()
        assert not down_bias.any()
        assert bool((up != 0).all())
        assert bool((up_bias != 0).all())
    with torch.no_grad():
        adapter.values.sub_(1e-3 * first)
    assert bool((gradient(vit, adapter) != 0).all())


def test_adapters_side_by_side_are_their_sum_and_one_when_taken_apart(tiny_backbone: MakeBackbone) -> None:
    vit, settings = tiny_backbone().vit, AdapterSettings(bottleneck=4, scale=0.5)
    adapter = FlatAdapter(vit, settings, generator()).eval()
    x = torch.randn(3, 17, 24, generator=generator(5))
    with torch.no_grad():
        adapter.values.copy_(torch.randn(adapter.values.shape, generator=generator(1)))
        first, before = adapter.values.clone(), tokens(vit, adapter, images())
        assert adapter.grow(3, generator(2)) == 2 * (2 * 24 * 3 + 3 + 24)
        assert torch.equal(adapter.values[: len(first)], first)
        assert torch.equal(adapter.values[len(first) :], adapter.initial[len(first) :])
        torch.testing.assert_close(tokens(vit, adapter, images()), before)
        adapter.values[len(first) :] = torch.randn(len(adapter.values) - len(first), generator=generator(3))
        expected = torch.zeros_like(x)
        for flat, hidden in ((first, 4), (adapter.values[len(first) :], 3)):
            down, down_bias, up, up_bias = block_weights(flat, 1, 24, hidden)
            expected += 0.5 * ((x @ down.T + down_bias).clamp(min=0) @ up.T + up_bias)
        with adapter.spread():
            torch.testing.assert_close(adapter.branch(1, x), expected)
        parts = adapter.parts()
        hidden_units = (x @ parts["1.down"].T + parts["1.down_bias"]).clamp(min=0)
        torch.testing.assert_close(0.5 * (hidden_units @ parts["1.up"].T + parts["1.up_bias"]), expected)
        norms = adapter.unit_norms(adapter.values)
        assert norms.shape == adapter.values.shape
        _, bias, _, up_bias = block_weights(adapter.values[len(first) :], 1, 24, 3)
        torch.testing.assert_close(norms[-24:], up_bias.norm().expand(24))
        unit = torch.cat([parts["1.down"][4], bias[:1], parts["1.up"][:, 4]])
        torch.testing.assert_close(norms[len(first) + 171 : len(first) + 195], unit.norm().expand(24))
        adapter.resize([4])
        assert adapter.values.shape == adapter.initial.shape == first.shape


def test_dropout_acts_on_the_hidden_layer_while_training_only(tiny_backbone: MakeBackbone) -> None:
    adapter = FlatAdapter(tiny_backbone().vit, AdapterSettings(bottleneck=200, scale=1.0, dropout=0.25), generator())
    x = torch.ones(500, 24)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        down, _, up, _ = block_weights(adapter.values, 0, 24, 200)
        down.fill_(1 / 24)
        up.fill_(1 / 200)
        with adapter.spread():
            adapter.eval()
            torch.testing.assert_close(adapter.branch(0, x), torch.ones(500, 24))
            adapter.train()
            kept = 0.75 * adapter.branch(0, x)
    # The share of the hidden layer that is kept, one draw for each row and none for each output.
    torch.testing.assert_close(kept, kept[:, :1].expand(500, 24))
    assert float(kept[:, 0].mean()) == pytest.approx(0.75, abs=0.01)
    assert float(kept[:, 0].std()) == pytest.approx(math.sqrt(0.75 * 0.25 / 200), rel=0.2)


def test_the_adapter_is_taken_out_without_a_trace(tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone()
    vit = backbone.vit
    keys, blocks = list(vit.state_dict()), list(vit.blocks)
    with torch.no_grad():
        bare = vit(images())
        adapter = FlatAdapter(vit, AdapterSettings(), generator())
        assert all(isinstance(block, Attached) for block in vit.blocks)
        assert not any("values" in key for key in vit.state_dict())
        adapter.values.add_(1.0)
        tokens(vit, adapter, images())
        adapter.detach(vit)
        assert list(vit.state_dict()) == keys
        assert all(now is before for now, before in zip(vit.blocks, blocks, strict=True))
        assert fingerprint(vit) == backbone.fingerprint
        assert torch.equal(vit(images()), bare)


def test_outside_the_context_the_backbone_is_bare(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    with torch.no_grad():
        bare = vit(images())
        adapter = FlatAdapter(vit, AdapterSettings(), generator())
        adapter.values.copy_(torch.randn(adapter.values.shape, generator=generator(1)))
        assert torch.equal(vit(images()), bare)
        with adapter.spread():
            assert not torch.allclose(vit(images()), bare, atol=1e-3)
        assert torch.equal(vit(images()), bare)
        adapter.detach(vit)
        assert torch.equal(vit(images()), bare)


def test_a_second_adapter_is_refused_and_the_first_stays(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    adapter = FlatAdapter(vit, AdapterSettings(), generator())
    attached = list(vit.blocks)
    with pytest.raises(BackboneError, match=r"block 0 .* Attached.*detach"):
        FlatAdapter(vit, AdapterSettings(), generator(1))
    assert list(vit.blocks) == attached
    assert tokens(vit, adapter, images(1)).isfinite().all()
    adapter.detach(vit)
    FlatAdapter(vit, AdapterSettings(), generator(1))


def test_other_blocks_are_refused_before_anything_is_changed() -> None:
    vit = VisionTransformer(
        img_size=28, patch_size=7, in_chans=1, num_classes=0, embed_dim=24, depth=2, num_heads=2, block_fn=OtherBlock
    )
    vit.blocks[0] = Block(24, 2)
    with pytest.raises(BackboneError, match=r"block 1 .* OtherBlock.*timm's Block"):
        FlatAdapter(vit, AdapterSettings(), generator())
    assert type(vit.blocks[0]) is Block


@pytest.mark.parametrize(("width", "hidden"), [(16, 8), (192, 4)])
def test_initial_values_are_bounded_and_up_projections_zero(width: int, hidden: int) -> None:
    flat = initial_values([width] * 3, hidden, generator())
    bound = math.sqrt(6 / ((1 + 5) * width))
    for index in range(3):
        down, down_bias, up, up_bias = block_weights(flat, index, width, hidden)
        assert float(down.abs().max()) <= bound
        assert float(down.abs().max()) > 0.9 * bound
        assert float(down.std()) == pytest.approx(bound / math.sqrt(3), rel=0.15)
        assert not any(part.any() for part in (down_bias, up, up_bias))


def test_initial_values_are_seeded(tiny_backbone: MakeBackbone) -> None:
    assert torch.equal(initial_values([8] * 2, 4, generator(0)), initial_values([8] * 2, 4, generator(0)))
    assert not torch.equal(initial_values([8] * 2, 4, generator(0)), initial_values([8] * 2, 4, generator(1)))
    adapter = FlatAdapter(tiny_backbone().vit, AdapterSettings(bottleneck=4), generator(2))
    assert torch.equal(adapter.initial, initial_values([24] * 2, 4, generator(2)))
