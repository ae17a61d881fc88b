"""Images that are gathered ahead are, bit for bit, those that are gathered when they are needed."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from run_outcome import outcome

from clare.data.placement import place_images
from clare.data.store import ImageStore, LabelledImages
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Silence
from clare.engine.images import ImageSource, drawn_batches
from clare.engine.ranks import Ranks
from clare.engine.run import run_experiment
from clare.engine.settings import EngineSettings
from clare.presets.load import make_experiment

MakeContext = Callable[..., Context]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def cropping_context(device: str = "cpu") -> Context:
    """Return a context whose random crops depend on the sizes of the images."""
    engine = EngineSettings.model_validate({"device": device})
    transforms = TransformSettings(image_size=8, resize=9, train="crop", train_kernel="bicubic")
    return Context(Ranks(engine), Transforms(transforms, (0.5,), (0.5,)), engine, 0, Silence())


def labelled(shapes: list[tuple[int, int]], is_mapped: bool) -> LabelledImages:
    """Return random grey images in random order of a store, with labels."""
    random = np.random.RandomState(0)
    plain = ImageStore.from_images([random.randint(0, 256, (1, *shape)).astype(np.uint8) for shape in shapes])
    store = ImageStore(plain.flat, plain.sizes, 1, is_mapped)
    indices = torch.from_numpy(random.permutation(len(shapes)))
    return LabelledImages(store, indices, torch.arange(len(shapes)) % 3)


def sweep(
    context: Context, images: LabelledImages, batch_size: int, augmented: bool
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return the inputs, labels and weights of all batches of a shuffled epoch."""
    source = ImageSource(context, images, augmented)
    source.begin_epoch(torch.Generator().manual_seed(1))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(2))
    return [
        (inputs.cpu(), labels.cpu(), batch.weights.cpu())
        for batch, inputs, labels in drawn_batches(source, order, batch_size, context.ranks)
    ]


def assert_same_batches(found: list[Any], expected: list[Any]) -> None:
    """Compare all tensors of all batches bit for bit."""
    for batch, other in zip(found, expected, strict=True):
        for tensor, other_tensor in zip(batch, other, strict=True):
            assert torch.equal(tensor, other_tensor)


@settings(max_examples=25)
@given(
    shapes=st.one_of(
        st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=14),
        st.integers(1, 14).map(lambda number: [(7, 9)] * number),
    ),
    batch_size=st.integers(1, 6),
    augmented=st.booleans(),
)
def test_gathering_ahead_changes_no_bit(shapes: list[tuple[int, int]], batch_size: int, augmented: bool) -> None:
    context = cropping_context()
    ahead, direct = (labelled(shapes, is_mapped) for is_mapped in (True, False))
    assert ImageSource(context, ahead, augmented).is_gathered_ahead
    assert not ImageSource(context, direct, augmented).is_gathered_ahead
    found = sweep(context, ahead, batch_size, augmented)
    assert len(found) == -(-len(shapes) // batch_size)
    assert_same_batches(found, sweep(context, direct, batch_size, augmented))


def test_an_empty_order_gives_no_batch() -> None:
    context, images = cropping_context(), labelled([(3, 4), (5, 5)], is_mapped=True)
    source = ImageSource(context, images, augmented=False)
    assert list(drawn_batches(source, torch.arange(0), 4, context.ranks)) == []


def test_a_store_that_fails_is_heard_in_the_loop() -> None:
    context, images = cropping_context(), labelled([(3, 4), (5, 5)], is_mapped=True)
    broken = replace(images, indices=torch.tensor([0, 7]))
    source = ImageSource(context, images, augmented=False)
    source.host_indices = broken.indices
    with pytest.raises((IndexError, RuntimeError)):
        list(drawn_batches(source, torch.arange(2), 1, context.ranks))
    assert all(thread.name != "clare-prefetch" for thread in threading.enumerate())


def test_leaving_the_loop_ends_the_thread() -> None:
    context, images = cropping_context(), labelled([(3, 4), (5, 5)] * 20, is_mapped=True)
    source = ImageSource(context, images, augmented=False)
    for _ in drawn_batches(source, torch.arange(40), 2, context.ranks):
        break
    assert all(thread.name != "clare-prefetch" for thread in threading.enumerate())


def write_tree(root: Path) -> None:
    """Write images of four classes and different sizes."""
    random = np.random.RandomState(0)
    for part, number in (("train", 6), ("test", 2)):
        for name in ("ant", "bee", "cat", "dog"):
            (root / part / name).mkdir(parents=True)
            for place in range(number):
                pixels = random.randint(0, 256, (28 + place, 34 - place)).astype(np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{place}.png")


@pytest.mark.parametrize(
    ("device", "stores"),
    [
        ("cpu", ["device", "mapped", "encoded"]),
        pytest.param("cuda", ["device", "pinned", "mapped", "encoded"], marks=[pytest.mark.gpu, needs_gpu]),
    ],
)
def test_a_run_is_the_same_wherever_its_images_are(
    tiny_preset: Path, tmp_path: Path, device: str, stores: list[str]
) -> None:
    write_tree(tmp_path / "tree")
    where = [f"data.root={tmp_path / 'tree'}", "data.dataset=folder", f"data.cache={tmp_path / 'cache'}"]
    stream = ["stream.num_classes=4", "stream.increment=2", "stream.train_per_class=5", f"engine.device={device}"]
    for store in stores:
        experiment = make_experiment(str(tiny_preset), "clare", [*where, *stream, f"data.store={store}"])
        run_experiment(experiment, tmp_path / store, Silence())
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [*[".pixels"] * 2, *[".shrunk"] * 2]
    for store in stores[1:]:
        assert outcome(tmp_path / store) == outcome(tmp_path / "device")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("shapes", [[(7, 9)] * 50, [(3 + n % 9, 12 - n % 7) for n in range(50)]])
@pytest.mark.parametrize("placement", ["pinned", "mapped"])
@pytest.mark.parametrize("augmented", [False, True])
def test_pixels_on_the_host_give_the_batches_of_the_device(
    shapes: list[tuple[int, int]], placement: str, augmented: bool
) -> None:
    context = cropping_context("cuda")
    images = labelled(shapes, is_mapped=placement == "mapped")
    device = context.ranks.device
    on_device = place_images(images, "device", device)
    on_host = place_images(images, placement, device)  # type: ignore[arg-type]
    assert ImageSource(context, on_host, augmented).is_gathered_ahead
    assert not ImageSource(context, on_device, augmented).is_gathered_ahead
    for batch_size in (1, 3, 8):
        expected = sweep(context, on_device, batch_size, augmented)
        assert_same_batches(sweep(context, on_host, batch_size, augmented), expected)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@pytest.mark.parametrize("shapes", [[(7, 9)] * 50, [(3 + n % 9, 12 - n % 7) for n in range(50)]])
def test_a_batch_on_the_device_never_waits_for_the_host(shapes: list[tuple[int, int]]) -> None:
    context = cropping_context("cuda")
    images = place_images(labelled(shapes, is_mapped=False), "device", context.ranks.device)
    source = ImageSource(context, images, augmented=True)
    source.begin_epoch(torch.Generator().manual_seed(1))
    positions = torch.arange(20, device=context.ranks.device)
    source.draw(positions)
    try:
        torch.cuda.set_sync_debug_mode("error")
        source.draw(positions)
    finally:
        torch.cuda.set_sync_debug_mode("default")
