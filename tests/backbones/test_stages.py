"""The stages of a ViT, put together again after its embedding, are its forward pass to the bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer

from clare.backbones.families import family_of
from clare.backbones.residuals import halves_of
from clare.backbones.stages import part_sizes, read
from clare.backbones.vit import Backbone
from clare.errors import BackboneError
from clare.tuners.token_prompts import TokenPrompts

SIZES: dict[str, Any] = {"img_size": 28, "patch_size": 7, "in_chans": 1, "num_classes": 0, "embed_dim": 24}


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"init_values": 0.1, "qk_norm": True},
        {"drop_path_rate": 0.5, "proj_drop_rate": 0.5, "attn_drop_rate": 0.5, "pos_drop_rate": 0.5},
        {"global_pool": "avg", "class_token": False},
        {"reg_tokens": 2, "no_embed_class": True, "pre_norm": True},
        {"global_pool": "map"},
    ],
    ids=lambda variant: "-".join(variant) or "plain",
)
@torch.no_grad()
def test_all_stages_are_the_forward_pass(variant: dict[str, Any]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vit = VisionTransformer(**SIZES, depth=3, num_heads=2, **variant).eval()
        images = torch.rand(5, 1, 28, 28)
    family = family_of(vit)
    tokens, steps = family.start(vit, images)
    for step in steps:
        tokens = halves_of(step.block)(step.block, tokens)[1]
    assert torch.equal(family.pooled(vit, family.normal(vit, tokens, True), True), vit(images))


IMAGES = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
MakeBackbone = Callable[..., Backbone]


def test_one_block_is_the_usual_feature_to_the_bit(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone(depth=3).vit
    assert torch.equal(read(vit, IMAGES, 1, with_patches=False), vit(IMAGES))
    assert part_sizes(vit, 1, with_patches=False) == [vit.num_features]


@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_parts_are_the_normalised_tokens_of_the_last_blocks(tiny_backbone: MakeBackbone, num_blocks: int) -> None:
    vit = tiny_backbone(depth=3).vit
    parts = read(vit, IMAGES, num_blocks, with_patches=True).split(int(vit.num_features), dim=1)
    assert part_sizes(vit, num_blocks, with_patches=True) == [part.shape[1] for part in parts]
    found = vit.forward_intermediates(
        IMAGES, indices=num_blocks, return_prefix_tokens=True, norm=True, output_fmt="NLC", intermediates_only=True
    )
    expected = [part for patches, prefix in found for part in (patches.mean(1), prefix[:, 0])]
    for part, whole in zip(parts, expected, strict=True):
        torch.testing.assert_close(part, F.normalize(whole, dim=1))


@pytest.mark.parametrize(("size", "border"), [(2, 0), (4, 1), (7, 1), (8, 2)])
def test_the_centre_is_without_a_quarter_of_the_patches_on_every_side(size: int, border: int) -> None:
    vit = VisionTransformer(**{**SIZES, "img_size": 4 * size, "patch_size": 4}, depth=2, num_heads=2).eval()
    images = torch.rand(3, 1, 4 * size, 4 * size, generator=torch.Generator().manual_seed(2))
    parts = read(vit, images, 2, with_patches=True, from_centre=True).split(int(vit.num_features), dim=1)
    found = vit.forward_intermediates(images, indices=2, return_prefix_tokens=True, norm=True, intermediates_only=True)
    inside = slice(border, size - border)
    expected = [part for grid, prefix in found for part in (grid[:, :, inside, inside].mean((2, 3)), prefix[:, 0])]
    for part, whole in zip(parts, expected, strict=True):
        torch.testing.assert_close(part, F.normalize(whole, dim=1))


def test_the_usual_feature_comes_last(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone(depth=3).vit
    last = read(vit, IMAGES, 2, with_patches=True)[:, -int(vit.num_features) :]
    torch.testing.assert_close(last, F.normalize(vit(IMAGES), dim=1))


@pytest.mark.parametrize("deep", [True, False])
def test_prompts_are_no_patches(tiny_backbone: MakeBackbone, deep: bool) -> None:
    vit = tiny_backbone(depth=3).vit
    bare = read(vit, IMAGES, 3, with_patches=True)
    prompts = TokenPrompts(vit, 4, deep)
    # Values of their own: a mean over patches and prompts would be far from one over patches in the first block read.
    prompts.values.data.fill_(3.0)
    seen: list[torch.Tensor] = []
    vit.norm.register_forward_hook(lambda _, inputs, outputs: seen.append(outputs))
    with prompts.spread():
        prompted = read(vit, IMAGES, 3, with_patches=True)
    size, num_patches = int(vit.num_features), int(vit.patch_embed.num_patches)
    expected = F.normalize(seen[0][:, 1 : 1 + num_patches].mean(1), dim=1)
    torch.testing.assert_close(prompted[:, :size], expected)
    assert not torch.allclose(prompted, bare)


def test_a_backbone_without_that_many_blocks_or_with_another_pooling_says_so(tiny_backbone: MakeBackbone) -> None:
    with pytest.raises(BackboneError, match=r"`method\.features\.blocks` is 4, but the backbone has 2 blocks"):
        part_sizes(tiny_backbone().vit, 4, with_patches=False)
    averaging = VisionTransformer(**SIZES, depth=3, num_heads=2, global_pool="avg", class_token=False).eval()
    with pytest.raises(BackboneError, match=r"is pooled otherwise \(avg\); set it to false"):
        part_sizes(averaging, 2, with_patches=True)
    assert read(averaging, IMAGES, 2, with_patches=False).shape == (
        5,
        sum(part_sizes(averaging, 2, with_patches=False)),
    )
