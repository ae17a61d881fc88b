"""Prefixes inside attention against plain matrix products, and what they leave of the backbone."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, ResPostBlock, VisionTransformer
from torch import Tensor, nn

from clare.backbones.vit import Backbone, build_embedded, fingerprint
from clare.errors import BackboneError
from clare.tuners.prefix import PrefixTuner, prefixed_attention

MakeBackbone = Callable[..., Backbone]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def images(num_images: int = 3) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=torch.Generator().manual_seed(7))


def make_vit(**architecture: Any) -> VisionTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_embedded(**{"embed_dim": 24, "depth": 3, "num_heads": 2, **architecture}).eval()


def make_attention(*sizes: int, **options: Any) -> Attention:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Attention(*sizes, **options).eval()


def by_hand(attention: Attention, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute attention with a prefix, image by image and head by head."""
    width, scale = attention.head_dim, attention.head_dim**-0.5
    outputs = []
    for image in range(len(x)):
        q, k, v = (x[image] @ attention.qkv.weight.T + attention.qkv.bias).split(attention.num_heads * width, 1)
        heads = []
        for head in range(attention.num_heads):
            part = slice(head * width, (head + 1) * width)
            own_keys = attention.k_norm(k[:, part])
            all_keys = torch.cat([keys[image, :, part], own_keys])
            all_values = torch.cat([values[image, :, part], v[:, part]])
            seen = (attention.q_norm(q[:, part]) @ all_keys.T * scale).softmax(1) @ all_values
            heads.append(seen)
        outputs.append(attention.norm(torch.cat(heads, 1)) @ attention.proj.weight.T + attention.proj.bias)
    return torch.stack(outputs)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("options", [{}, {"qk_norm": True}, {"scale_norm": True}, {"attn_head_dim": 5}])
@torch.no_grad()
def test_attention_with_a_prefix_is_that_of_plain_products(options: dict[str, Any], fused: bool) -> None:
    attention = make_attention(24, num_heads=3, qkv_bias=True, norm_layer=nn.LayerNorm, **options)
    for norm in (attention.q_norm, attention.k_norm, attention.norm):
        for parameter in norm.parameters():
            parameter.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(3))
    attention.fused_attn = fused
    x, keys, values = draw(2, 6, 24), draw(2, 4, attention.attn_dim, seed=1), draw(2, 4, attention.attn_dim, seed=2)
    ours = prefixed_attention(attention, x, (keys, values))
    torch.testing.assert_close(ours, by_hand(attention, x, keys, values), atol=1e-5, rtol=1e-5)
    alike = prefixed_attention(attention, x, (keys[:1], values[:1]))
    torch.testing.assert_close(alike, by_hand(attention, x, keys[:1].expand(2, -1, -1), values[:1].expand(2, -1, -1)))


@torch.no_grad()
def test_key_and_value_have_different_parts() -> None:
    """A key that no query likes hides its value; a value of zeros takes from all others what its key attracts."""
    attention = make_attention(8, num_heads=1, qkv_bias=True)
    attention.proj.load_state_dict({"weight": torch.eye(8), "bias": torch.zeros(8)})
    attention.qkv.bias.fill_(1.0)
    attention.qkv.weight.zero_()
    x, ones = draw(1, 3, 8), torch.ones(1, 1, 8)
    hidden = prefixed_attention(attention, x, (-1000 * ones, 5 * ones))
    torch.testing.assert_close(hidden, torch.ones(1, 3, 8))
    attracted = prefixed_attention(attention, x, (ones, torch.zeros(1, 1, 8)))
    torch.testing.assert_close(attracted, torch.full((1, 3, 8), 3 / 4))


@torch.no_grad()
def test_a_gate_is_respected() -> None:
    """A gate of zeros lets one half through."""
    attention = make_attention(8, num_heads=2, qkv_bias=True, proj_bias=False)
    x, prefix = draw(2, 3, 8), (draw(2, 2, 8, seed=1), draw(2, 2, 8, seed=2))
    plain = prefixed_attention(attention, x, prefix)
    attention.gate = nn.Linear(8, 8)
    for parameter in attention.gate.parameters():
        parameter.zero_()
    torch.testing.assert_close(2 * prefixed_attention(attention, x, prefix), plain)


@pytest.mark.parametrize("architecture", [{}, {"init_values": 0.1}, {"qk_norm": True}, {"drop_path_rate": 0.2}])
@torch.no_grad()
def test_blocks_without_a_prefix_are_timms_own(architecture: dict[str, Any]) -> None:
    vit = make_vit(**architecture)
    bare = vit(images())
    tuner = PrefixTuner(vit)
    assert torch.equal(vit(images()), bare)
    prefixes = [(draw(3, 2, 24), draw(3, 2, 24, seed=1))]
    with tuner.joined(prefixes):
        assert not torch.allclose(vit(images()), bare, atol=1e-4)
    assert torch.equal(vit(images()), bare)
    # A prefix of no tokens runs the same block through our own path.
    with tuner.joined([(torch.zeros(1, 0, 24), torch.zeros(1, 0, 24))] * 3):
        torch.testing.assert_close(vit(images()), bare, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_each_prefix_joins_its_own_block(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone(depth=4).vit
    blocks = list(vit.blocks)
    tuner = PrefixTuner(vit)
    prefixes = [(draw(1, 2, 24, seed=2 * i), draw(1, 2, 24, seed=2 * i + 1)) for i in range(2)]
    x = draw(2, 17, 24, seed=9)
    with tuner.joined(prefixes):
        for index, plain in enumerate(blocks):
            block, output = cast(Block, plain), vit.blocks[index](x)
            if index >= 2:
                assert torch.equal(output, block(x))
                continue
            after = x + prefixed_attention(cast(Attention, block.attn), block.norm1(x), prefixes[index])
            torch.testing.assert_close(output, after + block.mlp(block.norm2(after)))


@torch.no_grad()
def test_prefixes_are_taken_out_without_a_trace(tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone()
    vit = backbone.vit
    bare, keys, blocks = vit(images()), list(vit.state_dict()), list(vit.blocks)
    tuner = PrefixTuner(vit)
    with tuner.joined([(draw(1, 2, 24), draw(1, 2, 24))]):
        vit(images())
    tuner.detach(vit)
    assert list(vit.state_dict()) == keys
    assert all(now is before for now, before in zip(vit.blocks, blocks, strict=True))
    assert fingerprint(vit) == backbone.fingerprint
    assert torch.equal(vit(images()), bare)
    PrefixTuner(vit)


def test_a_failing_forward_leaves_no_prefix_behind(tiny_backbone: MakeBackbone) -> None:
    tuner = PrefixTuner(tiny_backbone().vit)
    with pytest.raises(RuntimeError, match="stop"), tuner.joined([(draw(1, 2, 24), draw(1, 2, 24))]):
        raise RuntimeError("stop")
    assert tuner.prefixes == {}


def test_gradients_reach_keys_and_values_of_every_prefix(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone(depth=3).vit
    tuner = PrefixTuner(vit)
    leaves = [draw(3, 2, 24, seed=i).requires_grad_(True) for i in range(6)]
    with tuner.joined(list(zip(leaves[::2], leaves[1::2], strict=True))):
        gradients = torch.autograd.grad(vit.forward_features(images()).square().sum(), leaves)
    assert all(bool((gradient != 0).all()) for gradient in gradients)


def test_other_blocks_and_attentions_are_refused_before_anything_is_changed(tiny_backbone: MakeBackbone) -> None:
    sizes: dict[str, Any] = {"img_size": 28, "patch_size": 7, "in_chans": 1, "num_classes": 0, "num_heads": 2}
    other_block = VisionTransformer(**sizes, embed_dim=24, depth=2, block_fn=ResPostBlock)
    with pytest.raises(BackboneError, match=r"whose blocks are not timm's plain Block with plain Attention"):
        PrefixTuner(other_block)
    other_attention = VisionTransformer(**sizes, embed_dim=24, depth=2, attn_layer="diff")
    with pytest.raises(BackboneError, match=r"whose blocks are not timm's plain Block with plain Attention"):
        PrefixTuner(other_attention)
    assert type(other_attention.blocks[0]) is Block
    vit = tiny_backbone().vit
    PrefixTuner(vit)
    with pytest.raises(BackboneError, match="detach what was attached before"):
        PrefixTuner(vit)
