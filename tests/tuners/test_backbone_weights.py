"""The flat weights stand in for a ViT's own, which nothing changes."""

from collections.abc import Callable

import torch

from clare.backbones.vit import Backbone, fingerprint
from clare.tuners.backbone_weights import BackboneWeights, flat_weights

MakeBackbone = Callable[..., Backbone]


def test_every_scalar_is_in_the_flat_parameter_in_the_order_of_the_vit(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    weights = BackboneWeights(vit)
    assert len(weights.values) == sum(parameter.numel() for parameter in vit.parameters())
    assert not weights.values.requires_grad
    split = weights.weights()
    assert list(split) == [name for name, _ in vit.named_parameters()]
    for name, parameter in vit.named_parameters():
        assert torch.equal(split[name], parameter)
    assert set(weights.state_dict()) == {"values"}


def test_features_are_those_of_a_vit_that_has_these_weights(tiny_backbone: MakeBackbone) -> None:
    vit, moved = tiny_backbone().vit, tiny_backbone(seed=1).vit
    images = torch.rand(3, 1, 28, 28)
    weights, before, plain = BackboneWeights(vit), fingerprint(vit), vit(images)
    assert torch.equal(weights.features(vit, images), plain)
    weights.values.copy_(flat_weights(moved))
    assert torch.equal(weights.features(vit, images), moved(images))
    assert not torch.allclose(moved(images), plain)
    # Outside, the ViT is what it was.
    assert torch.equal(vit(images), plain)
    assert fingerprint(vit) == before
    assert all(isinstance(parameter, torch.nn.Parameter) for parameter in vit.parameters())


def test_the_gradient_is_the_vits_own(tiny_backbone: MakeBackbone) -> None:
    vit, copy = tiny_backbone().vit, tiny_backbone().vit.requires_grad_(True)
    images = torch.rand(3, 1, 28, 28)
    weights = BackboneWeights(vit)
    weights.values.requires_grad_(True)
    direction = torch.linspace(-1, 1, 24)
    (gradient,) = torch.autograd.grad((weights.features(vit, images) @ direction).sum(), [weights.values])
    expected = torch.autograd.grad((copy(images) @ direction).sum(), list(copy.parameters()))
    assert torch.equal(gradient, torch.cat([part.flatten() for part in expected]))
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in vit.parameters())


def test_one_program_serves_all_weights_when_compiled(tiny_backbone: MakeBackbone) -> None:
    vit, images = tiny_backbone().vit, torch.rand(2, 1, 28, 28)
    weights = BackboneWeights(vit)
    compiled = torch.compile(lambda x: weights.features(vit, x), fullgraph=True, dynamic=False, backend="eager")
    for scale in (1.0, 0.5):
        weights.values.mul_(scale)
        torch.testing.assert_close(compiled(images), weights.features(vit, images))


def test_some_weights_stand_in_where_they_are_named(tiny_backbone: MakeBackbone) -> None:
    backbone, images = tiny_backbone(), torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    norms = BackboneWeights(backbone.vit, "norm")
    # A weight and a bias for each of five norms.
    assert norms.values.shape == (5 * 2 * 24,)
    bare = backbone.vit(images)
    assert torch.equal(norms.features(backbone.vit, images), bare)
    norms.values.data[-24:] += 1
    torch.testing.assert_close(norms.features(backbone.vit, images), bare + 1)
