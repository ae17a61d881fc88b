"""What goes into a store comes out of it, whatever the sizes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clare.data.store import ImageStore, LabelledImages, blank_outside, num_store_bytes, row_starts
from clare.errors import DataError


def random_images(shapes: list[tuple[int, int]], channels: int = 3) -> list[np.ndarray]:
    """Return images without a zero, so that padding shows."""
    random = np.random.RandomState(0)
    return [random.randint(1, 256, (channels, *shape)).astype(np.uint8) for shape in shapes]


def gather_one_by_one(images: list[np.ndarray], chosen: list[int]) -> torch.Tensor:
    """Return the chosen images on a canvas that holds any of them, the plain way."""
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    canvas = torch.zeros(len(chosen), images[0].shape[0], height, width, dtype=torch.uint8)
    for row, place in zip(canvas, chosen, strict=True):
        row[:, : images[place].shape[1], : images[place].shape[2]] = torch.from_numpy(images[place])
    return canvas


@settings(max_examples=80, deadline=None)
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
    assert torch.equal(canvas.pixels, gather_one_by_one(images, chosen))
    # The same in two parts, through memory that was used before.
    out = torch.full_like(canvas.pixels, 77)
    assert store.rows(torch.tensor(chosen), out=out).data_ptr() == out.data_ptr()
    assert torch.equal(blank_outside(out, canvas.sizes), canvas.pixels)


def test_all_batches_have_the_shape_of_the_largest_image() -> None:
    store = ImageStore.from_images(random_images([(2, 9), (8, 3), (1, 1)]))
    assert store.canvas_size == (8, 9)
    assert {store.batch(torch.tensor([place])).pixels.shape for place in range(3)} == {(1, 3, 8, 9)}


def test_equal_and_unequal_sizes_agree() -> None:
    images = random_images([(4, 5)] * 3)
    equal = ImageStore.from_images(images)
    unequal = ImageStore.from_images([*images, *random_images([(9, 9)])])
    indices = torch.tensor([2, 0, 2])
    assert torch.equal(equal.batch(indices).pixels, unequal.batch(indices).pixels[:, :, :4, :5])
    assert torch.equal(equal.batch(indices).sizes, unequal.batch(indices).sizes)


def test_rows_begin_where_they_should() -> None:
    starts = row_starts(torch.tensor([100, 2**40]), torch.tensor([[2, 5], [3, 4]]), channels=2, height=3)
    assert starts.dtype == torch.int64
    assert starts[0].tolist() == [[100, 105, 105], [110, 115, 115]]
    assert (starts[1] - 2**40).tolist() == [[0, 4, 8], [12, 16, 20]]


@pytest.mark.parametrize(("shapes", "num_spare"), [([(4, 5)] * 2, 0), ([(4, 5), (1, 7)], 7)])
def test_only_images_of_different_sizes_need_a_spare_row(shapes: list[tuple[int, int]], num_spare: int) -> None:
    images = random_images(shapes)
    num_pixels = sum(image.size for image in images)
    assert num_store_bytes(torch.tensor(shapes), 3) == num_pixels + num_spare
    assert ImageStore.from_images(images).num_bytes == num_pixels + num_spare
    # Without the spare row the store adds it.
    flat = torch.from_numpy(np.concatenate([image.reshape(-1) for image in images]))
    store = ImageStore(flat, torch.tensor(shapes), 3)
    assert torch.equal(store.batch(torch.arange(2)).pixels, gather_one_by_one(images, [0, 1]))


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


def test_pictures_are_counted_no_larger_than_the_backbone_sees_them() -> None:
    store = ImageStore.from_images(random_images([(4, 6), (10, 20), (8, 8)]))
    images = LabelledImages(store, torch.tensor([0, 1]), torch.tensor([0, 0]))
    assert images.num_bytes(8) == 3 * (4 * 6 + 8 * 8)
    assert images.num_bytes(100) == 3 * (4 * 6 + 10 * 20)


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_images_beyond_four_gigabytes_are_found() -> None:
    num_images = (1 << 32) // (3 * 1000 * 1000) + 2
    sizes = torch.full((num_images, 2), 1000)
    sizes[0, 1] = 999
    num_bytes = num_store_bytes(sizes, 3)
    store = ImageStore(torch.zeros(num_bytes, dtype=torch.uint8, device="cuda"), sizes, 3)
    assert num_bytes > 1 << 32
    store.flat[-1000 - 3_000_000 : -1000] = 9
    canvas = store.batch(torch.tensor([num_images - 1, 1], device="cuda"))
    assert canvas.pixels[0].min() == canvas.pixels[0].max() == 9
    assert canvas.pixels[1].max() == 0
