"""Prompts in the tokens against plain blocks run by hand, and what they leave of the backbone."""

from typing import cast

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from clare.backbones.attach import Attached
from clare.backbones.vit import build_embedded, fingerprint
from clare.errors import BackboneError
from clare.tuners.token_prompts import TokenPrompts

KINDS = pytest.mark.parametrize("deep", [True, False], ids=["deep", "shallow"])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(num_images: int = 3) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=generator(7))


def make_vit(**changes: object) -> VisionTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_embedded(**{"embed_dim": 24, "depth": 3, "num_heads": 2, **changes}).eval().requires_grad_(False)


def drawn(tuner: TokenPrompts) -> TokenPrompts:
    """Give the prompts values of their own."""
    tuner.values.data.copy_(torch.randn(tuner.values.shape, generator=generator(1)))
    return tuner


@KINDS
@pytest.mark.parametrize("changes", [{}, {"init_values": 0.1}, {"qk_norm": True}, {"global_pool": "avg"}])
def test_forward_is_plain_blocks_on_longer_sequences(deep: bool, changes: dict[str, object]) -> None:
    vit = make_vit(**changes)
    tuner = drawn(TokenPrompts(vit, 4, deep))
    with torch.no_grad():
        with tuner.spread():
            ours, features = vit.forward_features(images()), vit(images())
        tuner.detach(vit)
        x = vit._pos_embed(vit.patch_embed(images()))
        for index, block in enumerate(vit.blocks):
            if deep or index == 0:
                x = torch.cat([x[:, :17], tuner.values[index].expand(3, -1, -1)], 1)
            x = block(x)
        torch.testing.assert_close(ours, vit.norm(x[:, :17]))
        torch.testing.assert_close(features, vit.forward_head(vit.norm(x[:, :17]), pre_logits=True))


@KINDS
def test_one_prompt_of_one_block_by_hand(deep: bool) -> None:
    """Without weights but for values equal to the normed tokens, attention is the mean over all tokens."""
    vit = make_vit(depth=1)
    block = vit.blocks[0]
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.zero_()
        block.norm1.weight.fill_(1)  # type: ignore[union-attr]
        block.attn.qkv.weight[48:] = torch.eye(24)  # type: ignore[union-attr]
        block.attn.proj.weight.copy_(torch.eye(24))  # type: ignore[union-attr]
        tuner = drawn(TokenPrompts(vit, 1, deep))
        x = torch.randn(2, 17, 24, generator=generator(5))
        longer = torch.cat([x, tuner.values[0].expand(2, -1, -1)], 1)
        mean = torch.nn.functional.layer_norm(longer, (24,), eps=1e-6).mean(1, keepdim=True)
        with tuner.spread():
            torch.testing.assert_close(vit.blocks[0](x), x + mean)


def test_vit_base_has_the_published_numbers() -> None:
    for deep, num_values in ((True, 46_080), (False, 3_840)):
        with torch.device("meta"):
            vit = cast(VisionTransformer, timm.create_model("vit_base_patch16_224", num_classes=0))
        tuner = TokenPrompts(vit, 5, deep)
        assert tuner.values.numel() == num_values
        assert [name for name, _ in tuner.named_parameters()] == ["values"]
        assert not list(tuner.buffers())


@KINDS
def test_prompts_that_start_equal_get_equal_gradients(deep: bool) -> None:
    vit = make_vit()
    tuner = TokenPrompts(vit, 3, deep)
    assert not tuner.values.any()
    tuner.values.requires_grad_(True)
    with tuner.spread():
        loss = (vit(images()) * torch.randn(3, 24, generator=generator(2))).sum()
    (gradient,) = torch.autograd.grad(loss, tuner.values)
    torch.testing.assert_close(gradient, gradient[:, :1].expand_as(gradient))
    assert bool(gradient.flatten(1).any(1).all())


@KINDS
def test_prompts_are_taken_out_without_a_trace(deep: bool) -> None:
    vit = make_vit()
    keys, blocks, before = list(vit.state_dict()), list(vit.blocks), fingerprint(vit)
    with torch.no_grad():
        bare = vit(images())
        tuner = drawn(TokenPrompts(vit, 4, deep))
        assert all(isinstance(block, Attached) for block in vit.blocks)
        assert not any("values" in key for key in vit.state_dict())
        assert torch.equal(vit(images()), bare)
        with tuner.spread():
            assert not torch.allclose(vit(images()), bare, atol=1e-3)
        assert torch.equal(vit(images()), bare)
        tuner.detach(vit)
        assert list(vit.state_dict()) == keys
        assert all(now is then for now, then in zip(vit.blocks, blocks, strict=True))
        assert fingerprint(vit) == before
        assert torch.equal(vit(images()), bare)


def test_a_second_tuner_is_refused() -> None:
    vit = make_vit()
    tuner = TokenPrompts(vit, 1, True)
    with pytest.raises(BackboneError, match=r"block 0 .* Attached.*detach"):
        TokenPrompts(vit, 1, False)
    tuner.detach(vit)
    TokenPrompts(vit, 1, False)
