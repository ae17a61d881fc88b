"""The forward pass in parts is timm's own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clare.backbones.stages import class_position, embed, mean_feature, run_blocks
from clare.backbones.vit import build_embedded
from clare.errors import BackboneError


def images() -> Tensor:
    return torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(7))


def make_vit(**architecture: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_embedded(**{"embed_dim": 24, "depth": 2, "num_heads": 2, **architecture}).eval()


@pytest.mark.parametrize(
    "architecture",
    [{}, {"pre_norm": True}, {"no_embed_class": True}, {"reg_tokens": 2}, {"pos_embed": "none"}, {"init_values": 0.1}],
)
@torch.no_grad()
def test_the_parts_make_the_whole(architecture: dict[str, Any]) -> None:
    vit = make_vit(**architecture)
    assert torch.equal(run_blocks(vit, embed(vit, images())), vit.forward_features(images()))


@torch.no_grad()
def test_a_mean_of_patches_is_the_feature_of_a_vit_that_pools_so() -> None:
    vit = make_vit(global_pool="avg", class_token=False)
    assert vit.fc_norm.weight is not None
    feature = mean_feature(vit, run_blocks(vit, embed(vit, images())))
    torch.testing.assert_close(feature, vit(images()))


def test_the_class_tokens_position() -> None:
    vit = make_vit()
    assert torch.equal(class_position(vit), vit.pos_embed[0, 0])
    for architecture in ({"no_embed_class": True}, {"pos_embed": "none"}, {"class_token": False, "global_pool": "avg"}):
        with pytest.raises(BackboneError, match=r"has no position embedding.*`method\.prompt_position` to none"):
            class_position(make_vit(**architecture))
