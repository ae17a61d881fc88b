"""Updates of q, k and v rows against weights that contain them, and what they leave of the backbone."""

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from clare.backbones.attach import Attached
from clare.backbones.vit import Backbone, build_embedded, fingerprint, freeze
from clare.errors import BackboneError, SettingsError
from clare.tuners.adapter import AdapterSettings, FlatAdapter
from clare.tuners.lora import PARTS, Part, QkvLora, second_moment, unit_norm

MakeBackbone = Callable[..., Backbone]


class OtherBlock(Block):
    """A block of a kind that nobody knows."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(num_images: int = 5) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=generator(7))


def build(**sizes: Any) -> VisionTransformer:
    """Return a frozen ViT that the same sizes always give."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return freeze(build_embedded(**{"embed_dim": 24, "depth": 2, "num_heads": 2, **sizes}), None).vit


def filled(lora: QkvLora) -> QkvLora:
    """Draw both factors at random."""
    for seed, factor in enumerate((lora.down, lora.up)):
        factor.data.copy_(torch.randn(factor.shape, generator=generator(seed)) / 3)
    return lora


@pytest.mark.parametrize("shared_down", [False, True])
@pytest.mark.parametrize("parts", [("k", "v"), ("q", "v"), ("q", "k", "v"), ("k",)])
@pytest.mark.parametrize("sizes", [{}, {"qk_norm": True, "init_values": 0.3, "depth": 3, "qkv_bias": False}])
def test_an_active_update_is_a_weight_that_contains_it(
    parts: tuple[Part, ...], shared_down: bool, sizes: dict[str, Any]
) -> None:
    vit, plain = build(**sizes), build(**sizes)
    lora = filled(QkvLora(vit, 3, parts, shared_down))
    for index, block in enumerate(plain.blocks):
        for place, part in enumerate(parts):
            rows = slice(24 * PARTS.index(part), 24 * PARTS.index(part) + 24)
            product = lora.up[index, place] @ lora.down[index, 0 if shared_down else place]
            cast(Any, block).attn.qkv.weight.data[rows] += product
    with torch.no_grad(), lora.active(lora.product()):
        torch.testing.assert_close(vit(images()), plain(images()), rtol=1e-5, atol=1e-6)


def test_a_separate_update_is_the_summed_one_and_in_half_precision_leaks_less() -> None:
    summed, separate = (filled(QkvLora(build(), 3, ("k", "v"), True, is_separate)) for is_separate in (False, True))
    x = torch.randn(2, 5, 24, generator=generator(3), dtype=torch.float64)
    basis = torch.linalg.qr(summed.down[0, 0].double().T).Q
    unheard = x - x @ basis @ basis.T

    def outputs(lora: QkvLora, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        linear = nn.Linear(24, 72).to(dtype)
        nn.init.constant_(linear.bias, 0)
        linear.weight.data.copy_(torch.randn(72, 24, generator=generator(5)))
        with torch.no_grad(), lora.active(lora.product().to(dtype)):
            return lora.act(0, linear, inputs.to(dtype)).double() - linear(inputs.to(dtype)).double()

    torch.testing.assert_close(outputs(separate, x, torch.float64), outputs(summed, x, torch.float64))
    leaks = [outputs(lora, unheard, torch.bfloat16).norm() for lora in (summed, separate)]
    assert leaks[1] < leaks[0]


def test_rows_of_other_parts_are_untouched(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    lora = filled(QkvLora(vit, 2, ("k",), True))
    projection = cast(Any, vit.blocks[1]).attn.qkv
    x = torch.randn(2, 17, 24, generator=generator(3))
    bare = projection(x)
    with lora.active(lora.product()):
        q, k, v = (projection(x) - bare).chunk(3, dim=2)
    assert not q.any()
    assert not v.any()
    torch.testing.assert_close(k, x @ lora.product()[1, 0].T, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_outside_the_context_the_backbone_is_bare(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    bare = vit(images())
    lora = filled(QkvLora(vit, 2, ("q", "v"), False))
    assert torch.equal(vit(images()), bare)
    with lora.active(lora.product()):
        assert not torch.allclose(vit(images()), bare, atol=1e-3)
    assert torch.equal(vit(images()), bare)
    with pytest.raises(ZeroDivisionError), lora.active(lora.product()):
        _ = 1 / 0
    assert torch.equal(vit(images()), bare)


@torch.no_grad()
def test_updates_come_off_without_a_trace(tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone()
    vit = backbone.vit
    keys, projections = list(vit.state_dict()), [cast(Any, block).attn.qkv for block in vit.blocks]
    bare = vit(images())
    lora = filled(QkvLora(vit, 2, ("k", "v"), True))
    assert all(isinstance(cast(Any, block).attn.qkv, Attached) for block in vit.blocks)
    assert not any("lora" in key for key in vit.state_dict())
    with lora.active(lora.product()):
        vit(images())
    lora.detach(vit)
    assert list(vit.state_dict()) == keys
    assert all(cast(Any, block).attn.qkv is old for block, old in zip(vit.blocks, projections, strict=True))
    assert fingerprint(vit) == backbone.fingerprint
    assert torch.equal(vit(images()), bare)


def test_a_second_attachment_is_refused_and_the_first_stays(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    lora = QkvLora(vit, 2, ("k", "v"), True)
    attached = [cast(Any, block).attn.qkv for block in vit.blocks]
    with pytest.raises(BackboneError, match=r"attached to 'blocks\.0\.attn\.qkv' .*; detach it first"):
        QkvLora(vit, 2, ("q",), True)
    assert [cast(Any, block).attn.qkv for block in vit.blocks] == attached
    lora.detach(vit)
    FlatAdapter(vit, AdapterSettings(), generator())
    with pytest.raises(BackboneError, match=r"block 0 .*; detach what was attached before"):
        QkvLora(vit, 2, ("q",), True)


def test_other_blocks_are_refused_before_anything_is_changed() -> None:
    vit = VisionTransformer(
        img_size=28, patch_size=7, in_chans=1, num_classes=0, embed_dim=24, depth=2, num_heads=2, block_fn=OtherBlock
    )
    vit.blocks[0] = Block(24, 2)
    with pytest.raises(BackboneError, match=r"block 1 .* OtherBlock.*timm's Block"):
        QkvLora(vit, 2, ("q",), True)
    assert type(cast(Any, vit.blocks[0]).attn.qkv) is nn.Linear


def test_a_rank_beyond_the_width_is_refused_before_anything_is_changed(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    with pytest.raises(SettingsError, match=r"`method\.rank` is 30, but the backbone is 24 wide"):
        QkvLora(vit, 30, ("q",), True)
    assert type(cast(Any, vit.blocks[0]).attn.qkv) is nn.Linear


def test_gradients_reach_the_factors_alone(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    lora = filled(QkvLora(vit, 2, ("q", "v"), False))
    lora.requires_grad_(True)
    with lora.active(lora.product()):
        total = vit.forward_features(images()).square().sum()
    for gradient in torch.autograd.grad(total, [lora.down, lora.up]):
        assert bool(gradient.flatten(2).any(dim=2).all())
    assert not any(parameter.requires_grad for parameter in vit.parameters())


def test_half_precision_is_for_the_products_alone(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    lora = filled(QkvLora(vit, 2, ("k", "v"), True))
    with torch.no_grad(), lora.active(lora.product()):
        exact = vit(images())
    weights = torch.ones(5)
    halved = torch.autocast("cpu", torch.bfloat16)
    with torch.no_grad(), halved, lora.active(lora.product()), lora.watched(weights) as moments:
        rounded = vit(images())
    torch.testing.assert_close(rounded.float(), exact, rtol=0.1, atol=0.1)
    assert {moment.dtype for moment in moments} == {torch.float64}


@torch.no_grad()
def test_watched_inputs_are_those_of_the_projections(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    lora = filled(QkvLora(vit, 2, ("k", "v"), True))
    weights = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])
    with lora.active(lora.product()), lora.watched(weights) as moments:
        vit(images())
    assert [moment.shape for moment in moments] == [(24, 24)] * 2
    first = cast(Any, vit.blocks[0])
    seen = first.norm1(vit._pos_embed(vit.patch_embed(images())))[weights > 0].flatten(0, 1).double()
    torch.testing.assert_close(moments[0], seen.T @ seen, rtol=1e-5, atol=1e-5)
    vit(images())
    assert len(moments) == 2


def test_a_second_moment_by_hand() -> None:
    x = torch.tensor([[[1.0, 2.0], [3.0, 0.0]], [[100.0, 100.0], [100.0, 100.0]]])
    expected = torch.tensor([[10.0, 2.0], [2.0, 4.0]], dtype=torch.float64)
    assert torch.equal(second_moment(x, torch.tensor([1.0, 0.0])), expected)
    assert torch.equal(second_moment(x[:1], torch.tensor([2.0])), 2 * expected)


def test_down_projections_are_bounded_and_seeded(tiny_backbone: MakeBackbone) -> None:
    lora = QkvLora(tiny_backbone().vit, 8, ("q", "v"), shared_down=False)

    def drawn(seed: int = 0) -> Tensor:
        lora.draw(generator(seed))
        return lora.down.detach().clone()

    width = lora.down.shape[-1]
    assert float(drawn().abs().max()) <= 1 / math.sqrt(width)
    assert float(drawn().std()) == pytest.approx(1 / math.sqrt(width * 3), rel=0.1)
    assert torch.equal(drawn(), drawn())
    assert not torch.equal(drawn(), drawn(1))


def test_factors_of_unit_norm() -> None:
    factors = torch.stack([torch.full((1, 2, 2), 3.0), torch.zeros(1, 2, 2)])
    assert unit_norm(factors).tolist() == [[[[0.5, 0.5], [0.5, 0.5]]], [[[0.0, 0.0], [0.0, 0.0]]]]


def test_the_leading_singular_triples_stay(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    lora = filled(QkvLora(vit, 4, ("q", "v"), shared_down=True, num_kept=6))
    free = filled(QkvLora(tiny_backbone().vit, 4, ("q", "v"), shared_down=True))
    for block, updates, others in zip(vit.blocks, lora.product(), free.product(), strict=True):
        for place, update, other in zip((0, 2), updates, others, strict=True):
            weight = cast(Tensor, block.attn.qkv.inner.weight).chunk(3)[place]
            left, _, right = torch.linalg.svd(weight)
            torch.testing.assert_close(update @ right[:6].T, torch.zeros(24, 6), rtol=0, atol=1e-5)
            torch.testing.assert_close(left[:, :6].T @ update, torch.zeros(6, 24), rtol=0, atol=1e-5)
            # Elsewhere it is what it was.
            torch.testing.assert_close(left[:, 6:].T @ update @ right[6:].T, left[:, 6:].T @ other @ right[6:].T)
    with pytest.raises(SettingsError, match=r"`method\.kept_directions` is 25, but the backbone is 24 wide"):
        QkvLora(tiny_backbone().vit, 4, ("q", "v"), shared_down=True, num_kept=25)
