"""Two matrix products give what Pillow's crop and resize give."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from clare.data.resample import Kernel, crop_resize, to_levels, window_weights
from clare.data.store import Canvas, ImageStore

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
KERNELS: tuple[Kernel, ...] = ("bilinear", "bicubic")


def random_canvas(shapes: list[tuple[int, int]], channels: int, seed: int) -> Canvas:
    """Return noise, the hardest image to resize."""
    random = np.random.RandomState(seed)
    images = [random.randint(0, 256, (channels, *shape)).astype(np.uint8) for shape in shapes]
    return ImageStore.from_images(images).batch(torch.arange(len(images)))


def pillow_crop_resize(pixels: torch.Tensor, box: list[int], out_size: int, kernel: Kernel, flip: bool) -> torch.Tensor:
    """Return what Pillow makes of each channel, along the width first in every version."""
    top, left, height, width = box
    planes = []
    for plane in pixels:
        image = Image.fromarray(plane.numpy()).crop((left, top, left + width, top + height))
        image = image.resize((out_size, height), FILTERS[kernel]).resize((out_size, out_size), FILTERS[kernel])
        planes.append(np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else image))
    return torch.from_numpy(np.stack(planes)).float()


def weights_of(start: int, length: int, out_size: int, in_size: int, kernel: Kernel) -> torch.Tensor:
    """Return the weights of one box."""
    first, num_pixels, full_size = torch.tensor([start]), torch.tensor([length]), torch.tensor(out_size)
    return window_weights(first, num_pixels, full_size, torch.zeros_like(first), out_size, in_size, kernel)[0]


def test_bilinear_weights_by_hand() -> None:
    halves = weights_of(1, 4, 2, 6, "bilinear")
    expected = torch.tensor([[0, 3, 3, 1, 0, 0], [0, 0, 1, 3, 3, 0]]) / 7
    assert torch.allclose(halves, expected)
    doubled = weights_of(0, 2, 4, 2, "bilinear")
    assert torch.allclose(doubled, torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]]))


def test_bicubic_weights_by_hand() -> None:
    rows = weights_of(0, 4, 8, 4, "bicubic")
    at_quarters = {0.25: 0.8671875, 0.75: 0.2265625, 1.25: -0.0703125, 1.75: -0.0234375}
    inner = [at_quarters[distance] for distance in (1.25, 0.25, 0.75, 1.75)]
    assert torch.allclose(rows[3], torch.tensor(inner))
    edge = torch.tensor([at_quarters[distance] for distance in (0.25, 1.25)])
    assert torch.allclose(rows[0, :2], edge / edge.sum())
    assert not rows[0, 2:].any()


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(0, 40),
    length=st.integers(1, 60),
    rest=st.integers(0, 20),
    out_size=st.integers(1, 50),
    kernel=st.sampled_from(KERNELS),
)
def test_weights_sum_to_one_and_stay_in_the_box(
    start: int, length: int, rest: int, out_size: int, kernel: Kernel
) -> None:
    weights = weights_of(start, length, out_size, start + length + rest, kernel)
    assert weights.dtype == torch.float32
    assert torch.allclose(weights.sum(dim=1), torch.ones(out_size), atol=1e-5)
    assert not weights[:, :start].any()
    assert not weights[:, start + length :].any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_size_is_the_identity(kernel: Kernel) -> None:
    assert torch.equal(weights_of(3, 5, 5, 9, kernel), torch.eye(9)[3:8])


@pytest.mark.parametrize("kernel", KERNELS)
def test_both_ends_of_a_long_row_have_the_same_weights(kernel: Kernel) -> None:
    start, length, full_size = torch.tensor([0]), torch.tensor([5000]), torch.tensor([4777])
    near, far = (
        window_weights(start, length, full_size, torch.tensor([offset]), 8, 5000, kernel)[0] for offset in (0, 4769)
    )
    assert torch.allclose(near, far.flip(0, 1), atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kernel=st.sampled_from(KERNELS), channels=st.sampled_from([1, 3]), out_size=st.integers(1, 70))
def test_pillow_agrees(data: st.DataObject, kernel: Kernel, channels: int, out_size: int) -> None:
    sides = st.integers(1, 90)
    shapes = data.draw(st.lists(st.tuples(sides, sides), min_size=1, max_size=4))
    canvas = random_canvas(shapes, channels, data.draw(st.integers(0, 2**32 - 1)))
    boxes, flips = [], []
    for height, width in shapes:
        top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        size = (data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
        boxes.append([top, left, *size])
        flips.append(data.draw(st.booleans()))
    result = crop_resize(canvas, torch.tensor(boxes), out_size, kernel, torch.tensor(flips))
    assert result.shape == (len(shapes), channels, out_size, out_size)
    assert result.dtype == torch.float32
    for pixels, found, box, flip in zip(canvas.pixels, result, boxes, flips, strict=True):
        difference = (to_levels(found) - pillow_crop_resize(pixels, box, out_size, kernel, flip)).abs()
        # A tie between two levels can fall either way in each of the two passes; all else is equal.
        assert difference.max() <= 2


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_mean_difference_from_pillow_is_the_rounding(kernel: Kernel) -> None:
    canvas = random_canvas([(300, 211), (97, 150), (224, 500)], 3, 0)
    boxes = torch.tensor([[10, 5, 200, 180], [0, 0, 97, 150], [100, 300, 31, 45]])
    flips = torch.tensor([False, True, False])
    result = crop_resize(canvas, boxes, 128, kernel, flips)
    for pixels, found, box, flip in zip(canvas.pixels, result, boxes.tolist(), flips.tolist(), strict=True):
        expected = pillow_crop_resize(pixels, box, 128, kernel, flip)
        assert (found.clamp(0, 255) - expected).abs().mean() < 0.3
        difference = (to_levels(found) - expected).abs()
        assert difference.max() <= 1
        assert (difference == 0).float().mean() > 0.99


def test_levels_round_half_up_and_clip() -> None:
    values = torch.tensor([-3.0, 0.49, 0.5, 1.5, 2.5, 254.6, 300.0])
    assert to_levels(values).tolist() == [0, 0, 1, 2, 3, 255, 255]
    assert values[0] == -3


def test_images_do_not_see_the_padding_of_their_neighbours() -> None:
    canvas = random_canvas([(20, 30), (60, 50)], 3, 1)
    alone = Canvas(canvas.pixels[:1, :, :20, :30], canvas.sizes[:1])
    box, flip = torch.tensor([[0, 0, 20, 30]]), torch.tensor([True])
    together = crop_resize(canvas, box.repeat(2, 1), 16, "bicubic", flip.repeat(2))[0]
    assert torch.allclose(together, crop_resize(alone, box, 16, "bicubic", flip)[0], atol=1e-3)


def test_half_precision_around_it_changes_nothing() -> None:
    canvas = random_canvas([(20, 30)], 3, 1)
    arguments = (canvas, torch.tensor([[2, 3, 15, 20]]), 16, "bilinear", torch.tensor([False]))
    plain = crop_resize(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(crop_resize(*arguments), plain)
