"""Further views of an image: what they show, and that they are averaged where an image is counted or classified."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clare.backbones.features import enlarged_middle, views_of
from clare.backbones.vit import Backbone
from clare.errors import SettingsError
from clare.methods.base import METHODS, Method, passes_per_image
from clare.settings import build_settings

SIZE = 28


def ramp(size: int) -> Tensor:
    """Return an image whose brightness is the place in it, from 0 on the left edge to 1 on the right."""
    return ((torch.arange(size) + 0.5) / size).expand(1, 1, size, size)


def test_a_closer_view_leaves_out_a_border_on_every_side_and_keeps_the_size() -> None:
    closer = enlarged_middle(ramp(280), 20)
    assert closer.shape == (1, 1, 280, 280)
    # Away from the edges, where the filter has all its pixels, it is the ramp from 1/14 to 13/14.
    expected = 1 / 14 + 12 / 14 * ramp(280)
    torch.testing.assert_close(closer[..., 4:-4], expected[..., 4:-4], rtol=0, atol=1e-3)
    torch.testing.assert_close(enlarged_middle(ramp(280).mT, 20), closer.mT)


def test_three_views_are_the_whole_its_middle_and_the_middle_four_sevenths() -> None:
    images = torch.rand(2, 3, 112, 112, generator=torch.Generator().manual_seed(0))
    whole, middle, closest = views_of(images, 3)
    assert whole is images
    assert torch.equal(middle, enlarged_middle(images, 12))
    assert torch.equal(closest, enlarged_middle(images, 24))


@given(st.integers(1, 16), st.integers(1, 60))
def test_there_are_as_many_views_as_asked_for_at_any_size(num_views: int, size: int) -> None:
    images = torch.rand(1, 1, size, size, generator=torch.Generator().manual_seed(0))
    views = views_of(images, num_views)
    assert len(views) == num_views
    assert all(view.shape == images.shape and view.isfinite().all() for view in views)


def make(backbone: Backbone, name: str, **features: object) -> Method:
    """Return a method that reads as told."""
    kind = METHODS.get(name)
    return kind(backbone, build_settings(kind.settings_type, {"features": features}, "method"), 0)


@torch.no_grad()
@pytest.mark.parametrize("reading", [{}, {"blocks": 2, "patches": True}])
def test_an_image_is_counted_and_classified_by_the_mean_over_its_views(
    tiny_backbone: Callable[..., Backbone], reading: dict[str, object]
) -> None:
    images = torch.rand(3, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    plain = make(tiny_backbone(depth=3), "clare", **reading).eval()
    method = make(tiny_backbone(depth=3), "clare", **reading, views=3).eval()
    expected = torch.stack([plain.features(view) for view in views_of(images, 3)]).mean(0)
    assert torch.equal(method.features(images), expected)
    assert not torch.allclose(expected, plain.features(images))
    assert torch.equal(method.train().features(images), plain.features(images)), "training takes one view"


def test_passes_are_counted_for_each_view(tiny_backbone: Callable[..., Backbone]) -> None:
    assert passes_per_image(make(tiny_backbone(), "clare", views=3)) == 3
    assert passes_per_image(make(tiny_backbone(), "aper-adapter", views=3)) == 6


@pytest.mark.parametrize("name", ["l2p", "ease", "full-finetune"])
def test_a_method_with_features_of_its_own_has_no_such_setting(
    tiny_backbone: Callable[..., Backbone], name: str
) -> None:
    with pytest.raises(SettingsError, match=r"no setting 'method\.features'"):
        make(tiny_backbone(), name, views=2)
