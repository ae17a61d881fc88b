"""Transforms give what torchvision's Pillow pipeline gives, and the same batch for the same generator."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, InterpolationMode, RandomResizedCrop, Resize

from clare.data.store import Canvas, ImageStore
from clare.data.transforms import Transforms, TransformSettings, affine_maps, bright_borders, crop_boxes, darkened
from clare.errors import DataError, SettingsError
from clare.settings import build_settings

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
NUM_DRAWS = 6000


def random_canvas(shapes: list[tuple[int, int]], channels: int = 3) -> Canvas:
    """Return noise of these heights and widths."""
    random = np.random.RandomState(0)
    images = [random.randint(0, 256, (channels, *shape)).astype(np.uint8) for shape in shapes]
    return ImageStore.from_images(images).batch(torch.arange(len(images)))


def transforms_of(**values: object) -> Transforms:
    """Return transforms from loose settings."""
    return Transforms(TransformSettings.model_validate(values), MEAN, STD)


def seeded(seed: int) -> torch.Generator:
    """Return a generator of its own."""
    return torch.Generator().manual_seed(seed)


def smooth_canvas(shapes: list[tuple[int, int]]) -> Canvas:
    """Return slow waves of grey, more like a photograph than noise is."""
    waves = [
        np.sin(np.linspace(0, 9, height))[:, None] * np.cos(np.linspace(0, 7, width) + channel)[None]
        for height, width in shapes
        for channel in range(3)
    ]
    levels = [np.round(127.5 + 127.5 * wave).astype(np.uint8) for wave in waves]
    images = [np.stack(levels[place : place + 3]) for place in range(0, len(levels), 3)]
    return ImageStore.from_images(images).batch(torch.arange(len(images)))


def torchvision_test_transform(canvas: Canvas, image_size: int, resize: int) -> torch.Tensor:
    """Return what torchvision makes of Pillow images."""
    results = []
    for pixels, (height, width) in zip(canvas.pixels, canvas.sizes.tolist(), strict=True):
        array = pixels[:, :height, :width].permute(1, 2, 0).numpy()
        image = Image.fromarray(array if array.shape[2] == 3 else array[:, :, 0])
        image = CenterCrop(image_size)(Resize(resize, InterpolationMode.BICUBIC)(image))
        results.append(torch.from_numpy(np.array(image)).view(image_size, image_size, -1).permute(2, 0, 1) / 255)
    return torch.stack(results)


SIZES = pytest.mark.parametrize(("image_size", "resize"), [(64, 73), (64, 64), (31, 40), (33, 40)])


@pytest.mark.parametrize("channels", [1, 3])
@SIZES
def test_the_test_transform_is_torchvisions_on_noise(channels: int, image_size: int, resize: int) -> None:
    canvas = random_canvas([(101, 97), (50, 201), (64, 64), (40, 40), (41, 40), (33, 37), (73, 97), (1, 9)], channels)
    found = transforms_of(image_size=image_size, resize=resize).test(canvas)
    assert found.shape == (8, channels, image_size, image_size)
    assert found.dtype == torch.float32
    difference = (found - torchvision_test_transform(canvas, image_size, resize)).abs()
    assert difference.max() <= 1.01 / 255
    assert difference.mean() < 0.01 / 255


@SIZES
def test_the_test_transform_is_torchvisions_on_smooth_images(image_size: int, resize: int) -> None:
    canvas = smooth_canvas([(301, 80), (97, 50), (50, 97), (333, 333), (20, 21)])
    found = transforms_of(image_size=image_size, resize=resize).test(canvas)
    difference = (found - torchvision_test_transform(canvas, image_size, resize)).abs()
    assert difference.max() <= 2 / 255
    assert difference.mean() < 0.3 / 255


def test_images_of_the_right_size_are_not_touched() -> None:
    canvas = random_canvas([(28, 28)] * 3, channels=1)
    transforms = transforms_of(image_size=28, resize=28, train="none")
    assert torch.equal(transforms.test(canvas), canvas.pixels / 255)
    assert torch.equal(transforms.train(canvas, seeded(0)), canvas.pixels / 255)


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (224, 224, (0.05, 1.0), (3 / 4, 4 / 3)),
        (100, 300, (0.05, 1.0), (3 / 4, 4 / 3)),
        (150, 90, (0.5, 1.0), (0.5, 2.0)),
        (28, 28, (0.3, 0.6), (1.0, 1.0)),
    ],
)
def test_crops_are_distributed_as_torchvisions(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    torch.manual_seed(0)
    image = torch.empty(1, height, width)
    reference = torch.tensor(
        [RandomResizedCrop.get_params(image, list(scale), list(ratio)) for _ in range(NUM_DRAWS)]
    ).double()
    draws = torch.rand(NUM_DRAWS, 22, generator=seeded(1), dtype=torch.float64)
    boxes = crop_boxes(torch.tensor([[height, width]]).expand(NUM_DRAWS, 2), draws, scale, ratio).double()
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    for measure in (
        lambda box: box[:, 2] * box[:, 3] / (height * width),
        lambda box: torch.log(box[:, 3] / box[:, 2]),
        lambda box: box[:, 0] / height,
        lambda box: box[:, 1] / width,
    ):
        found, expected = measure(boxes), measure(reference)
        assert abs(found.mean() - expected.mean()) < 0.02
        assert torch.allclose(found.quantile(levels), expected.quantile(levels), atol=0.04)


def test_crops_lie_within_the_image() -> None:
    sizes = torch.randint(1, 60, (5000, 2), generator=seeded(2))
    sizes[:500] = 1
    draws = torch.rand(5000, 22, generator=seeded(3), dtype=torch.float64)
    draws[:10, -2:] = 1 - 2**-53
    boxes = crop_boxes(sizes, draws, (0.05, 1.0), (3 / 4, 4 / 3))
    assert boxes.dtype == torch.int64
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] >= 1).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= sizes).all()


@pytest.mark.parametrize(
    ("size", "expected"), [((10, 100), [0, 43, 10, 13]), ((100, 10), [43, 0, 13, 10]), ((100, 101), [0, 0, 100, 101])]
)
def test_where_no_crop_fits_the_central_one_is_taken(size: tuple[int, int], expected: list[int]) -> None:
    draws = torch.full((1, 22), 0.5, dtype=torch.float64)
    draws[:, :10] = 1.0
    draws[:, 10:20] = 1.0 if size[0] > size[1] else 0.0
    if size == (100, 101):
        draws[:, 10:20] = 1.0
    assert crop_boxes(torch.tensor([size]), draws, (0.05, 1.0), (3 / 4, 4 / 3)).tolist() == [expected]


def test_the_first_crop_that_fits_is_taken() -> None:
    draws = torch.full((1, 22), 0.0, dtype=torch.float64)
    draws[:, :10] = torch.tensor([1.0, 1.0, 0.25, *[0.0] * 7])
    draws[:, 10:20] = 0.5
    draws[:, -2:] = torch.tensor([0.999, 0.0])
    boxes = crop_boxes(torch.tensor([[40, 160]]), draws, (0.0, 1.0), (0.5, 2.0))
    assert boxes.tolist() == [[0, 0, 40, 40]]
    boxes = crop_boxes(torch.tensor([[50, 160]]), draws, (0.0, 0.8), (0.5, 2.0))
    assert boxes.tolist() == [[10, 0, 40, 40]]


@pytest.mark.parametrize("train", ["crop", "affine"])
def test_the_same_generator_state_gives_the_same_batch(train: str) -> None:
    canvas = random_canvas([(30, 40), (50, 20), (33, 33)])
    transforms = transforms_of(image_size=24, resize=24, train=train)
    generator = seeded(4)
    first, second = transforms.train(canvas, generator), transforms.train(canvas, generator)
    assert torch.equal(first, transforms.train(canvas, seeded(4)))
    assert not torch.equal(first, second)
    assert first.shape == (3, 3, 24, 24)
    assert first.min() >= 0
    assert first.max() <= 1


@pytest.mark.parametrize("train", ["crop", "affine", "none"])
def test_half_precision_around_it_changes_nothing(train: str) -> None:
    canvas = random_canvas([(30, 40), (50, 20), (33, 33)])
    transforms = transforms_of(image_size=24, resize=28, train=train, normalise="backbone")
    plain = transforms.train(canvas, seeded(8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(transforms.train(canvas, seeded(8)), plain)


def test_global_randomness_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for train in ("crop", "affine"):
        transforms_of(image_size=8, resize=8, train=train).train(random_canvas([(9, 9)]), seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("train", ["crop", "affine"])
@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_flips_mirror_left_and_right(train: str, flip: float) -> None:
    canvas = random_canvas([(20, 20)] * 4)
    still = {"rotation": 0, "zoom": 0, "shift": 0, "shear": 0, "crop_scale": (1, 1), "crop_ratio": (1, 1)}
    transforms = transforms_of(image_size=20, resize=20, train=train, flip=flip, **still)
    expected = canvas.pixels / 255
    assert torch.equal(transforms.train(canvas, seeded(5)), expected.flip(3) if flip else expected)


@pytest.mark.parametrize("train", ["crop", "affine"])
def test_half_of_the_images_are_flipped(train: str) -> None:
    canvas = Canvas(torch.tensor([[[[0, 255]] * 2]], dtype=torch.uint8).expand(2000, 1, 2, 2), torch.full((2000, 2), 2))
    still = {"rotation": 0, "zoom": 0, "shift": 0, "shear": 0, "crop_scale": (1, 1), "crop_ratio": (1, 1)}
    images = transforms_of(image_size=2, resize=2, train=train, **still).train(canvas, seeded(6))
    assert images[:, 0, 0, 0].mean().item() == pytest.approx(0.5, abs=0.05)


def map_of(draws: list[float], flip: bool = False, **values: float) -> torch.Tensor:
    """Return one affine map."""
    return affine_maps(torch.tensor([draws]), torch.tensor([flip]), TransformSettings.model_validate(values))[0]


def test_affine_maps_by_hand() -> None:
    assert torch.allclose(map_of([0, 0, 0, 0, 0]), torch.tensor([[1.0, 0, 0], [0, 1, 0]]))
    assert torch.allclose(map_of([0, 0, 0, 0, 0], flip=True), torch.tensor([[-1.0, 0, 0], [0, 1, 0]]))
    assert torch.allclose(map_of([0, 0, 1, 0, 0], zoom=0.25), torch.tensor([[0.8, 0, 0], [0, 0.8, 0]]))
    assert torch.allclose(map_of([0, 0, 0, 1, -1], shift=0.1), torch.tensor([[1, 0, -0.2], [0, 1, 0.2]]))
    assert torch.allclose(map_of([1, 0, 0, 0, 0], rotation=90), torch.tensor([[0, -1.0, 0], [1, 0, 0]]), atol=1e-6)
    assert torch.allclose(map_of([0, 1, 0, 0, 0], shear=45), torch.tensor([[1.0, 1, 0], [0, 1, 0]]))
    everything = map_of([0.3, 0.2, -0.5, 0.7, 0.1], flip=True)
    assert torch.det(everything[:, :2]).item() == pytest.approx(-1 / (1 - 0.075) ** 2, rel=1e-5)


def test_a_shift_moves_the_image_and_leaves_black_behind() -> None:
    pixels = torch.full((1, 1, 10, 10), 200, dtype=torch.uint8)
    canvas = Canvas(pixels, torch.tensor([[10, 10]]))
    settings = {"rotation": 0, "zoom": 0, "shear": 0, "flip": 0, "shift": 1.0}
    images = transforms_of(image_size=10, resize=10, train="affine", **settings).train(canvas, seeded(0))
    draws = torch.rand(1, 6, generator=seeded(0), dtype=torch.float64)[0] * 2 - 1
    columns, rows = (math.floor(abs(float(draw)) * 10) for draw in draws[3:5])
    assert (images == 0).sum() >= 10 * max(rows, columns)
    assert torch.isclose(images.max(), torch.tensor(200 / 255)) or max(rows, columns) == 9


def test_normalising_uses_the_backbones_channels() -> None:
    canvas = random_canvas([(16, 16)] * 2)
    plain = transforms_of(image_size=16, resize=16).test(canvas)
    normal = transforms_of(image_size=16, resize=16, normalise="backbone").test(canvas)
    for channel in range(3):
        assert torch.allclose(normal[:, channel], (plain[:, channel] - MEAN[channel]) / STD[channel])
    with pytest.raises(DataError, match="1 channels and the backbone 3"):
        transforms_of(image_size=16, resize=16, normalise="backbone").test(random_canvas([(16, 16)], channels=1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image_size": 32, "resize": 30}, "resize 30 is less than image_size 32"),
        ({"crop_scale": (0.5, 0.2)}, "crop_scale"),
        ({"crop_scale": (0.5, 1.2)}, "crop_scale"),
        ({"crop_ratio": (0, 1)}, "crop_ratio"),
        ({"flip": 1.5}, "flip"),
    ],
)
def test_settings_out_of_bounds(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build_settings(TransformSettings, values, "transforms")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("train", ["crop", "affine", "none"])
def test_cuda_gives_the_batch_of_the_cpu(train: str) -> None:
    canvas = random_canvas([(30, 40), (50, 20), (33, 33)])
    moved = Canvas(canvas.pixels.cuda(), canvas.sizes)
    transforms = transforms_of(image_size=24, resize=28, train=train, normalise="backbone")
    expected, found = transforms.train(canvas, seeded(7)), transforms.train(moved, seeded(7))
    assert found.is_cuda
    assert (found.cpu() - expected).abs().max() <= 1.01 / 255 / min(STD)


def test_only_pictures_with_a_bright_border_become_negatives() -> None:
    white = torch.full((1, 10, 10), 255.0)
    white[0, 4:6, 4:6] = 0
    striped = torch.zeros(1, 10, 10)
    striped[0, :, ::2] = 255
    images = torch.stack([white, 255 - white, striped])
    assert bright_borders(images, 255.0).tolist() == [True, False, False]
    assert torch.equal(darkened(images, 255.0), torch.stack([255 - white, 255 - white, striped]))


@pytest.mark.parametrize("train", ["none", "affine", "crop"])
def test_negatives_are_made_alike_in_training_and_testing(train: str) -> None:
    dark = torch.zeros(4, 1, 28, 28, dtype=torch.uint8)
    dark[:, :, 8:20, 8:20] = torch.randint(0, 256, (4, 1, 12, 12), generator=torch.Generator().manual_seed(0)).byte()
    settings = TransformSettings.model_validate(
        {"image_size": 28, "resize": 28, "train": train, "crop_scale": (1.0, 1.0), "invert": "bright-border"}
    )
    transforms = Transforms(settings, (0.5,), (0.5,))
    sizes = torch.full((4, 2), 28)
    draws = transforms.draws(4, torch.Generator().manual_seed(1))
    pair = [transforms.augment(Canvas(pixels, sizes), draws) for pixels in (dark, 255 - dark)]
    torch.testing.assert_close(pair[0], pair[1], atol=1e-6, rtol=0)
    assert transforms.inverted(Canvas(255 - dark, sizes)).all()
