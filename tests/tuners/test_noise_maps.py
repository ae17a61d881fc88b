"""Maps after blocks, against numbers worked out by hand, and as they grow."""

from collections.abc import Callable

import torch

from clare.backbones.vit import Backbone
from clare.tuners.noise_maps import NoiseMaps

MakeBackbone = Callable[..., Backbone]


def make_maps(backbone: Backbone, hidden: int = 2) -> NoiseMaps:
    return NoiseMaps(backbone.vit, hidden, torch.Generator().manual_seed(0))


def test_a_mixture_of_two_tasks_by_hand(tiny_backbone: MakeBackbone) -> None:
    maps = make_maps(tiny_backbone(embed_dim=2, depth=1, num_heads=1))
    maps.begin(torch.ones(2))
    maps.down.copy_(torch.tensor([[[1, 0], [0, 0.5]]]))
    maps.up.copy_(torch.tensor([[[0.5, 1], [0, 1]]]))
    maps.kept.copy_(torch.tensor([[[[0.1, 0.1, 0], [0, 0.2, 0]]]]))
    maps.current[0, 0] = torch.tensor([[0.2, 0.1, 0], [0, 0, 0]])
    maps.shares.copy_(torch.tensor([[0.401312, 0.598688]]))
    with maps.spread():
        out = maps.act(0, torch.nn.Identity(), torch.tensor([[[1.0, 2.0]]]))
    torch.testing.assert_close(out, torch.tensor([[[1.210197, 2.080262]]]), rtol=0, atol=1e-6)
    maps.linear[0] = torch.tensor([[1.0, 0, 3], [0, 0, 0]])
    with maps.spread():
        moved = maps.act(0, torch.nn.Identity(), torch.tensor([[[1.0, 2.0]]]))
    torch.testing.assert_close(moved - out, torch.tensor([[[4.0, 0.0]]]))


def test_maps_of_zeros_change_nothing_and_are_taken_off(tiny_backbone: MakeBackbone) -> None:
    backbone, images = tiny_backbone(), torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    bare = backbone.vit(images)
    maps = make_maps(backbone)
    maps.begin(torch.ones(1))
    with maps.spread():
        assert torch.equal(backbone.vit(images), bare)
        maps.current.data.fill_(0.1)
    with maps.spread():
        noisy = backbone.vit(images)
    assert not torch.allclose(noisy, bare)
    assert torch.equal(backbone.vit(images), bare)
    # What a task has learnt goes on to count, by its share.
    maps.begin(torch.tensor([1.0, 0.5]))
    assert not maps.current.any()
    with maps.spread():
        torch.testing.assert_close(backbone.vit(images), noisy)
    maps.detach(backbone.vit)
    assert torch.equal(backbone.vit(images), bare)


def test_random_ways_have_the_bounds_of_linear_layers(tiny_backbone: MakeBackbone) -> None:
    maps = make_maps(tiny_backbone(), hidden=4)
    assert 0.45 < float(maps.down.abs().max()) <= 1 / 2
    assert 0.18 < float(maps.up.abs().max()) <= 24**-0.5
