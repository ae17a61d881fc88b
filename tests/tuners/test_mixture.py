"""The growing mixture against its formulas written out, and what it leaves of the backbone."""

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor

from clare.backbones.attach import Attached
from clare.backbones.vit import Backbone, build_embedded, fingerprint
from clare.errors import BackboneError
from clare.tuners.mixture import BlockAdapters, Mixture, MixtureSettings, RoutedAdapters

MakeBackbone = Callable[..., Backbone]
SMALL = MixtureSettings(bottleneck=4, descriptor=3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(num_images: int = 5, seed: int = 7) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=generator(seed))


def tokens(vit: VisionTransformer, mixture: Mixture, inputs: Tensor) -> Tensor:
    """Return all tokens of the adapted backbone."""
    with mixture.spread():
        outputs: Tensor = vit.forward_features(inputs)
    return outputs


def scatter(mixture: Mixture, seed: int = 3) -> None:
    """Give every parameter random values."""
    for parameter in mixture.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator(seed), dtype=torch.float64))
        seed += 1


def routed(width: int = 2, bottleneck: int = 1, descriptor: int = 1, num_adapters: int = 1) -> RoutedAdapters:
    """Return the adapters of one block, all zeros."""
    adapters = RoutedAdapters(width, MixtureSettings(bottleneck=bottleneck, descriptor=descriptor))
    adapters.take({name: each.new_zeros(num_adapters, *each.shape[1:]) for name, each in adapters.named_parameters()})
    return adapters


def written_out(vit: VisionTransformer, mixture: Mixture, inputs: Tensor) -> Tensor:
    """Compute the tokens one adapter after the other, with plain matrix products."""
    x = vit._pos_embed(vit.patch_embed(inputs))
    for plain, adapters in zip(vit.blocks, mixture.adapters, strict=True):
        block = cast(Block, plain)
        x = x + block.ls1(block.attn(block.norm1(x)))
        logits = torch.zeros(len(x), 1, dtype=x.dtype)
        if isinstance(adapters, RoutedAdapters):
            logits = x.mean(1) @ adapters.router.T + adapters.router_bias
        total = block.ls2(block.mlp(block.norm2(x)))
        for k, share in enumerate(logits.softmax(1).T):
            hidden = (x @ adapters.down[k].T + adapters.down_bias[k]).clamp(min=0)
            total = total + share[:, None, None] * (hidden @ adapters.up[k] + adapters.up_bias[k])
        x = x + total
    result: Tensor = vit.norm(x)
    return result


@pytest.mark.parametrize("changes", [{}, {"init_values": 0.05}, {"qk_norm": True, "reg_tokens": 3}])
def test_forward_is_a_routed_sum_of_adapters(changes: dict[str, object]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        vit = build_embedded(embed_dim=24, depth=3, num_heads=2, **changes).double().eval()
    mixture = Mixture(vit, SMALL, 2, generator()).double()
    for block, num_more in zip(mixture.routed, (1, 3), strict=True):
        for _ in range(num_more):
            block.grow(generator())
    assert mixture.counts == [2, 4]
    with torch.no_grad():
        scatter(mixture)
        ours = tokens(vit, mixture, images().double())
        mixture.detach(vit)
        torch.testing.assert_close(ours, written_out(vit, mixture, images().double()), rtol=1e-10, atol=1e-10)


def test_shares_are_the_routers_softmax_of_the_mean_token() -> None:
    adapters = routed(num_adapters=2)
    adapters.router.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    adapters.router_bias.data.copy_(torch.tensor([0.0, -math.log(2)]))
    x = torch.tensor([[[0.0, 5.0], [2 * math.log(3), 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    mean = adapters.token_mean(x)
    torch.testing.assert_close(mean, torch.tensor([[math.log(3), 3.0], [0.0, 0.0]]))
    torch.testing.assert_close(adapters.shares(mean), torch.tensor([[6 / 7, 1 / 7], [2 / 3, 1 / 3]]))


def test_mix_on_numbers_done_by_hand() -> None:
    adapters = routed(num_adapters=2)
    adapters.down.data.copy_(torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]]))
    adapters.down_bias.data.copy_(torch.tensor([[0.5], [0.0]]))
    adapters.up.data.copy_(torch.tensor([[[2.0, 0.0]], [[0.0, 10.0]]]))
    adapters.up_bias.data.copy_(torch.tensor([[0.0, 1.0], [4.0, 0.0]]))
    x, shares = torch.tensor([[[1.0, 2.0], [2.0, 1.0]]]), torch.tensor([[0.25, 0.75]])
    # Token (1, 2): hidden 3.5 and relu(-1) = 0; token (2, 1): hidden 3.5 and 1.
    expected = torch.tensor([[[0.25 * 7 + 3, 0.25], [0.25 * 7 + 3, 0.25 + 7.5]]])
    torch.testing.assert_close(adapters.mix(x, shares), expected)


def test_a_descriptors_loss_and_distance_on_numbers_done_by_hand() -> None:
    adapters = routed(num_adapters=2)
    adapters.encoder.data.copy_(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
    adapters.decoder.data.copy_(torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]]))
    adapters.decoder_bias.data.copy_(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    mean = torch.tensor([[3.0, 4.0]])
    # Copies (3, 0) and (0, 5): errors (0, 16) and (9, 1).
    torch.testing.assert_close(adapters.description_losses(mean), torch.tensor([[8.0, 5.0]]))
    torch.testing.assert_close(adapters.newest_loss(mean), torch.tensor([5.0]))
    adapters.mean.data.copy_(torch.tensor([2.0, 5.5]))
    adapters.std.data.copy_(torch.tensor([3.0, 0.25]))
    torch.testing.assert_close(adapters.novelty(mean), torch.tensor([[2.0, 2.0]]))


def test_statistics_need_three_losses_and_until_then_nothing_is_new() -> None:
    adapters = RoutedAdapters(2, MixtureSettings(bottleneck=1, descriptor=1))
    adapters.grow(generator())
    far = torch.tensor([[1e6, -1e6]])
    assert adapters.novelty(far).tolist() == [[0.0]]
    adapters.remember(torch.tensor([1.0, 2.0]))
    assert adapters.novelty(far).tolist() == [[0.0]]
    adapters.remember(torch.tensor([1.0, 2.0, 3.0]))
    assert (adapters.mean.tolist(), adapters.std.tolist()) == ([2.0], [1.0])
    adapters.grow(generator())
    adapters.remember(torch.tensor([2.0, 4.0, 6.0]))
    assert (adapters.mean.tolist(), adapters.std.tolist()) == ([2.0, 4.0], [1.0, 2.0])


def test_descriptors_and_router_keep_full_precision_under_autocast() -> None:
    adapters = RoutedAdapters(24, SMALL)
    for _ in range(3):
        adapters.grow(generator())
    mean = torch.randn(6, 24, generator=generator(1))
    losses, shares = adapters.description_losses(mean), adapters.shares(mean)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(adapters.description_losses(mean), losses)
        assert torch.equal(adapters.shares(mean), shares)


def test_a_new_adapter_is_drawn_behind_the_old_ones_which_keep_their_bits() -> None:
    adapters = RoutedAdapters(16, MixtureSettings(bottleneck=8, descriptor=64))
    adapters.grow(generator(0))
    old = {name: parameter.detach().clone() for name, parameter in adapters.named_parameters()}
    adapters.grow(generator(1))
    assert len(adapters) == 2
    for name, parameter in adapters.named_parameters():
        assert torch.equal(parameter[:1], old[name]), name
        assert not parameter.requires_grad
    for name, fan_in in (("down", 16), ("router", 16), ("encoder", 16), ("decoder", 64)):
        values, bound = adapters.get_parameter(name)[1].abs(), 1 / math.sqrt(fan_in)
        assert 0.8 * bound < float(values.max()) <= bound
        assert not torch.equal(adapters.get_parameter(name)[1], old[name][0])
    assert 0 < abs(float(adapters.router_bias[1])) <= 1 / 4
    for name in ("down_bias", "up", "up_bias", "encoder_bias", "decoder_bias", "mean"):
        assert not adapters.get_parameter(name)[1].any(), name


def test_only_the_newest_entries_are_trained() -> None:
    adapters = RoutedAdapters(24, SMALL)
    adapters.grow(generator())
    assert {group.mask for group in adapters.groups() + adapters.descriptor_groups()} == {None}
    adapters.grow(generator())
    functional = [id(adapters.get_parameter(name)) for name in BlockAdapters.names]
    assert [id(group.parameter) for group in adapters.groups()][:4] == functional
    trained = {id(group.parameter) for group in adapters.groups() + adapters.descriptor_groups()}
    assert trained == {id(p) for name, p in adapters.named_parameters() if name not in ("mean", "std")}
    for group in adapters.groups() + adapters.descriptor_groups():
        assert group.mask is not None
        assert not group.mask[0].any()
        assert bool(group.mask[1].all())


def test_it_is_inactive_unless_switched_on_and_comes_off_without_a_trace(tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone()
    vit = backbone.vit
    keys, blocks = list(vit.state_dict()), list(vit.blocks)
    with torch.no_grad():
        bare = vit.forward_features(images())
        mixture = Mixture(vit, SMALL, 1, generator())
        assert all(isinstance(block, Attached) for block in vit.blocks)
        # The up-projections are zero at first.
        assert torch.equal(tokens(vit, mixture, images()), bare)
        scatter(mixture)
        assert not torch.equal(tokens(vit, mixture, images()), bare)
        assert torch.equal(vit.forward_features(images()), bare)
        mixture.detach(vit)
        assert fingerprint(vit) == backbone.fingerprint
        assert list(vit.state_dict()) == keys
        assert all(now is before for now, before in zip(vit.blocks, blocks, strict=True))
        assert torch.equal(vit.forward_features(images()), bare)


def test_an_error_in_a_pass_switches_it_off(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    mixture = Mixture(vit, SMALL, 1, generator())
    with pytest.raises(RuntimeError), mixture.spread():
        vit.forward_features(torch.zeros(1, 2, 28, 28))
    assert not mixture.is_active


def test_other_attachments_are_refused(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    Mixture(vit, SMALL, 1, generator())
    with pytest.raises(BackboneError, match=r"block 0 .* Attached.*detach"):
        Mixture(vit, SMALL, 1, generator())
