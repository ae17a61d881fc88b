"""The stages of a ViT, put together again after its embedding, are its forward pass to the bit."""

from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from clare.backbones.attach import plain_blocks
from clare.backbones.stages import attended, embed, mlp_update, pooled

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
    tokens = embed(vit, images)
    for block in plain_blocks(vit):
        tokens = attended(block, tokens)
        tokens = tokens + mlp_update(block, tokens)
    assert torch.equal(pooled(vit, tokens), vit(images))
