"""Scales and shifts against the formula written out by hand, and what they leave of the backbone."""

from collections.abc import Callable
from typing import cast

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from clare.backbones.attach import Attached
from clare.backbones.vit import Backbone, build_embedded, fingerprint
from clare.errors import BackboneError
from clare.tuners.scale_shift import ScaleShift, places

MakeBackbone = Callable[..., Backbone]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(num_images: int = 3) -> Tensor:
    return torch.rand(num_images, 1, 28, 28, generator=generator(7))


def make_vit(**changes: object) -> VisionTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_embedded(embed_dim=24, depth=2, num_heads=2, **changes).eval().requires_grad_(False)


def written_out(vit: VisionTransformer, parts: dict[str, tuple[Tensor, Tensor]], inputs: Tensor) -> Tensor:
    """Compute the tuned tokens of a plain ViT with two heads from its weights and the scale and shift of each place."""

    def tuned(name: str, x: Tensor) -> Tensor:
        scale, shift = parts[name]
        return x * scale + shift

    def normed(name: str, x: Tensor) -> Tensor:
        norm = vit.get_submodule(name)
        return tuned(name, F.layer_norm(x, (24,), norm.weight, norm.bias, 1e-6))  # type: ignore[arg-type]

    def linear(name: str, x: Tensor) -> Tensor:
        layer = cast(torch.nn.Linear, vit.get_submodule(name))
        return tuned(name, x @ layer.weight.T + layer.bias)

    x = tuned("patch_embed.norm", vit.patch_embed.proj(inputs).flatten(2).mT)
    x = torch.cat([vit.cls_token.expand(len(x), -1, -1), x], 1) + vit.pos_embed  # type: ignore[union-attr]
    for index in range(2):
        block = f"blocks.{index}"
        q, k, v = linear(f"{block}.attn.qkv", normed(f"{block}.norm1", x)).unflatten(2, (3, 2, 12)).unbind(2)
        scores = torch.einsum("bthe,bshe->bhts", q, k) / 12**0.5
        seen = torch.einsum("bhts,bshe->bthe", scores.softmax(-1), v).flatten(2)
        x = x + linear(f"{block}.attn.proj", seen)
        hidden = F.gelu(linear(f"{block}.mlp.fc1", normed(f"{block}.norm2", x)))
        x = x + linear(f"{block}.mlp.fc2", hidden)
    return normed("norm", x)


def test_forward_is_the_formula() -> None:
    vit = make_vit().double()
    tuner = ScaleShift(vit, generator()).double()
    inputs = images().double()
    with torch.no_grad():
        tuner.values.add_(0.3 * torch.randn(tuner.values.shape, generator=generator(1), dtype=torch.float64))
        with tuner.spread():
            ours = vit.forward_features(inputs)
        tuner.detach(vit)
        scales, shifts = (torch.split(half, tuner.widths) for half in tuner.values.chunk(2))
        parts = dict(zip(places(vit), zip(scales, shifts, strict=True), strict=True))
        torch.testing.assert_close(ours, written_out(vit, parts, inputs), rtol=1e-9, atol=1e-9)


def test_vit_base_has_the_published_number() -> None:
    with torch.device("meta"):
        vit = cast(VisionTransformer, timm.create_model("vit_base_patch16_224", num_classes=0))
    tuner = ScaleShift(vit, generator())
    assert tuner.values.numel() == 205_824
    assert [name for name, _ in tuner.named_parameters()] == ["values"]
    assert not list(tuner.buffers())


def test_initial_values_are_near_one_and_zero_and_seeded() -> None:
    scales, shifts = ScaleShift(make_vit(), generator()).values.chunk(2)
    assert float(scales.mean()) == pytest.approx(1, abs=0.003)
    assert float(shifts.mean()) == pytest.approx(0, abs=0.003)
    for values in (scales, shifts):
        assert float(values.std()) == pytest.approx(0.02, rel=0.1)
    again, other = (ScaleShift(make_vit(), generator(seed)).values for seed in (0, 1))
    assert torch.equal(again, torch.cat([scales, shifts]))
    assert not torch.equal(again, other)


def test_outside_the_context_the_backbone_is_bare(tiny_backbone: MakeBackbone) -> None:
    vit = tiny_backbone().vit
    with torch.no_grad():
        bare = vit(images())
        tuner = ScaleShift(vit, generator())
        assert torch.equal(vit(images()), bare)
        with tuner.spread():
            assert not torch.allclose(vit(images()), bare, atol=1e-3)
        assert torch.equal(vit(images()), bare)
        tuner.values.view(2, -1).copy_(torch.tensor([[1.0], [0.0]]).expand(2, tuner.values.numel() // 2))
        with tuner.spread():
            torch.testing.assert_close(vit(images()), bare)


@pytest.mark.parametrize("changes", [{}, {"init_values": 0.1}, {"qk_norm": True}, {"global_pool": "avg"}])
def test_scales_and_shifts_are_taken_out_without_a_trace(changes: dict[str, object]) -> None:
    vit = make_vit(**changes)
    keys, modules, before = list(vit.state_dict()), list(vit.modules()), fingerprint(vit)
    with torch.no_grad():
        bare = vit(images())
        tuner = ScaleShift(vit, generator())
        assert not any("values" in key for key in vit.state_dict())
        with tuner.spread():
            assert vit(images()).isfinite().all()
        tuner.detach(vit)
        assert not any(isinstance(module, Attached) for module in vit.modules())
        assert list(vit.state_dict()) == keys
        assert all(now is then for now, then in zip(vit.modules(), modules, strict=True))
        assert fingerprint(vit) == before
        assert torch.equal(vit(images()), bare)


def test_gradients_reach_every_scale_and_shift() -> None:
    vit = make_vit()
    tuner = ScaleShift(vit, generator())
    tuner.values.requires_grad_(True)
    with tuner.spread():
        outputs = vit.forward_features(images(8))
    weights = torch.randn(outputs.shape, generator=generator(9))
    (gradient,) = torch.autograd.grad((outputs * weights).sum(), tuner.values)
    shifts = dict(zip(places(vit), torch.split(gradient.chunk(2)[1], tuner.widths), strict=True))
    for name, part in shifts.items():
        # A shift of all keys moves all scores of a query alike, which the softmax does not see.
        seen = part.view(3, 24)[[0, 2]] if name.endswith("qkv") else part
        assert bool((seen.abs() > 1e-8).all()), name
    assert bool((gradient.chunk(2)[0] != 0).all())


def test_under_autocast_every_place_keeps_its_type() -> None:
    vit = make_vit()
    tuner, types = ScaleShift(vit, generator()), []
    plain = [vit.get_submodule(f"{name}.inner") for name in places(vit)]
    for module in plain:
        module.register_forward_hook(lambda _, __, output: types.append(output.dtype))
    for name in places(vit):
        vit.get_submodule(name).register_forward_hook(lambda _, __, output: types.append(output.dtype))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), tuner.spread():
        vit(images())
    assert types[0::2] == types[1::2]
    assert torch.bfloat16 in types


def test_a_second_tuner_is_refused_and_the_first_stays() -> None:
    vit = make_vit()
    tuner = ScaleShift(vit, generator())
    with pytest.raises(BackboneError, match=r"attached to 'patch_embed\.norm'.*detach"):
        ScaleShift(vit, generator(1))
    tuner.detach(vit)
    ScaleShift(vit, generator(1))


def test_another_mlp_is_refused_before_anything_is_changed() -> None:
    vit = make_vit()
    del vit.blocks[1].mlp.fc1  # type: ignore[union-attr]
    modules = list(vit.modules())
    with pytest.raises(BackboneError, match=r"which has no 'blocks\.1\.mlp\.fc1'.*plain ViT"):
        ScaleShift(vit, generator())
    assert all(now is then for now, then in zip(vit.modules(), modules, strict=True))
