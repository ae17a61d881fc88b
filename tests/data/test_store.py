"""What goes into a store comes out of it, whatever the sizes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clare.data.store import ImageStore, LabelledImages
from clare.errors import DataError


def random_images(shapes: list[tuple[int, int]], channels: int = 3) -> list[np.ndarray]:
    """Return images without a zero, so that padding shows."""
    random = np.random.RandomState(0)
    return [random.randint(1, 256, (channels, *shape)).astype(np.uint8) for shape in shapes]


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=6),
    channels=st.sampled_from([1, 3]),
    data=st.data(),
)
def test_a_batch_holds_each_image_at_the_top_left(
    shapes: list[tuple[int, int]], channels: int, data: st.DataObject
) -> None:
    images = random_images(shapes, channels)
    store = ImageStore.from_images(images)
    chosen = data.draw(st.lists(st.integers(0, len(images) - 1), min_size=1, max_size=8))
    canvas = store.batch(torch.tensor(chosen))
    assert canvas.pixels.dtype == torch.uint8
    assert canvas.sizes.dtype == torch.int64
    assert canvas.sizes.tolist() == [list(shapes[place]) for place in chosen]
    assert list(canvas.pixels.shape[2:]) == canvas.sizes.amax(dim=0).tolist()
    for pixels, place in zip(canvas.pixels, chosen, strict=True):
        height, width = shapes[place]
        assert np.array_equal(pixels[:, :height, :width].numpy(), images[place])
        assert int(pixels.sum()) == int(images[place].sum())


def test_equal_and_unequal_sizes_agree() -> None:
    images = random_images([(4, 5)] * 3)
    equal = ImageStore.from_images(images)
    unequal = ImageStore.from_images([*images, *random_images([(9, 9)])])
    indices = torch.tensor([2, 0, 2])
    assert torch.equal(equal.batch(indices).pixels, unequal.batch(indices).pixels)
    assert torch.equal(equal.batch(indices).sizes, unequal.batch(indices).sizes)


def test_an_array_is_not_copied() -> None:
    array = np.stack(random_images([(4, 5)] * 3))
    store = ImageStore.from_array(array)
    assert len(store) == 3
    assert store.channels == 3
    assert store.num_bytes == 3 * 3 * 4 * 5
    array[1] = 0
    assert int(store.batch(torch.tensor([1])).pixels.sum()) == 0
    tensor = torch.from_numpy(array)
    assert ImageStore.from_array(tensor).flat.data_ptr() == tensor.data_ptr()


def test_a_read_only_array_is_copied() -> None:
    array = np.stack(random_images([(4, 5)] * 3))
    array.setflags(write=False)
    assert np.array_equal(ImageStore.from_array(array).batch(torch.arange(3)).pixels.numpy(), array)


def test_a_transposed_array_is_stored_as_it_reads() -> None:
    array = np.stack(random_images([(4, 5)] * 3)).transpose(0, 1, 3, 2)
    assert np.array_equal(ImageStore.from_array(array).batch(torch.arange(3)).pixels.numpy(), array)


def test_images_that_do_not_fit_are_refused() -> None:
    images = random_images([(4, 5)])
    with pytest.raises(DataError, match="at least one image"):
        ImageStore.from_images([])
    with pytest.raises(DataError, match=r"\(1, 4, 4\).*\(3, height, width\)"):
        ImageStore.from_images([*images, *random_images([(4, 4)], channels=1)])
    with pytest.raises(DataError, match="float64"):
        ImageStore.from_images([images[0].astype(np.float64)])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"\(3, 4, 5\)"):
        ImageStore.from_array(images[0])
    with pytest.raises(DataError, match=r"\(0, 3, 4, 4\)"):
        ImageStore.from_array(np.zeros((0, 3, 4, 4), np.uint8))


@pytest.mark.parametrize("shapes", [[(4, 4)] * 5, [(4, 4), (3, 5), (2, 2), (6, 1), (1, 1)]])
def test_selecting_twice_is_selecting_once(shapes: list[tuple[int, int]]) -> None:
    store = ImageStore.from_images(random_images(shapes))
    images = LabelledImages(store, torch.tensor([4, 2, 0, 1]), torch.tensor([7, 8, 9, 6]))
    part = images.select(torch.tensor([3, 1])).select(torch.tensor([1, 0, 1]))
    assert part.store is store
    assert len(part) == 3
    assert part.indices.tolist() == [2, 1, 2]
    canvas, labels = part.batch(torch.tensor([0, 1]))
    assert labels.tolist() == [8, 6]
    assert torch.equal(canvas.pixels, store.batch(torch.tensor([2, 1])).pixels)


def test_labels_must_pair_with_images() -> None:
    store = ImageStore.from_images(random_images([(4, 4)] * 2))
    with pytest.raises(DataError, match="2 images came with 3 labels"):
        LabelledImages(store, torch.arange(2), torch.arange(3))


def test_moving_keeps_the_images() -> None:
    store = ImageStore.from_images(random_images([(4, 4), (2, 3)]))
    images = LabelledImages(store, torch.arange(2), torch.tensor([1, 0]))
    moved = images.to("cpu")
    assert torch.equal(moved.batch(torch.arange(2))[0].pixels, images.batch(torch.arange(2))[0].pixels)
    assert moved.labels.tolist() == [1, 0]
    assert images.to("meta").labels.device.type == images.to("meta").store.device.type == "meta"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shapes", [[(4, 4)] * 3, [(4, 4), (3, 5), (2, 2)]])
@pytest.mark.parametrize("positions_device", ["cpu", "cuda"])
def test_a_batch_on_cuda_is_the_batch_on_the_cpu(shapes: list[tuple[int, int]], positions_device: str) -> None:
    images = LabelledImages(ImageStore.from_images(random_images(shapes)), torch.tensor([2, 1, 0]), torch.arange(3))
    positions = torch.tensor([1, 2, 0])
    canvas, labels = images.batch(positions)
    moved_canvas, moved_labels = images.to("cuda").batch(positions.to(positions_device))
    assert moved_canvas.pixels.is_cuda
    assert torch.equal(moved_canvas.pixels.cpu(), canvas.pixels)
    assert torch.equal(moved_labels.cpu(), labels)
