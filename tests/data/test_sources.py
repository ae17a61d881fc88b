"""Data sets are found by name, read in a fixed order, and refused with the layout that was expected."""

import pickle
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clare.data.placement import Machine
from clare.data.sources import DATASETS, Dataset, DataSettings, load_dataset
from clare.errors import DataError, SettingsError
from clare.settings import build_settings


def write_image(path: Path, value: int, size: tuple[int, int] = (6, 5)) -> None:
    """Write an image of one grey value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def write_tree(root: Path, classes: tuple[str, ...] = ("ant", "bee")) -> None:
    """Write three training images and one test image of each class; class and number are in the grey value."""
    for place, name in enumerate(classes):
        for number in range(3):
            write_image(root / "train" / name / f"{number}.png", 50 * place + number, (6 + number, 5))
        write_image(root / "test" / name / "0.png", 50 * place + 10)


def folder_settings(root: Path, **values: object) -> DataSettings:
    """Return settings that read the tree itself."""
    return DataSettings.model_validate({"dataset": "folder", "root": str(root), **values})


def grey_values(dataset: Dataset) -> list[int]:
    """Return the first pixel of each training image."""
    canvas, _ = dataset.train.batch(torch.arange(len(dataset.train)))
    values: list[int] = canvas.pixels[:, 0, 0, 0].tolist()
    return values


@pytest.mark.parametrize(("name", "num_classes"), [("quickdraw", 200), ("quickdraw-pretrain", 145)])
@pytest.mark.parametrize("channels", [1, 3])
def test_drawings(name: str, num_classes: int, channels: int) -> None:
    dataset = load_dataset(DataSettings.model_validate({"dataset": name, "channels": channels}))
    assert dataset.name == name
    assert len(dataset.classes) == num_classes
    assert list(dataset.classes) == sorted(dataset.classes)
    assert torch.equal(dataset.train.labels.bincount(), torch.full((num_classes,), 80))
    assert torch.equal(dataset.test.labels.bincount(), torch.full((num_classes,), 20))
    canvas, labels = dataset.train.batch(torch.tensor([0, 81]))
    assert canvas.pixels.shape == (2, channels, 28, 28)
    assert labels.tolist() == [0, 1]
    assert torch.equal(canvas.pixels, canvas.pixels[:, :1].expand_as(canvas.pixels))


def test_drawings_to_pretrain_and_to_learn_share_no_class() -> None:
    learn, pretrain = (load_dataset(DataSettings(dataset=name)).classes for name in ("quickdraw", "quickdraw-pretrain"))
    assert not set(learn) & set(pretrain)
    assert len(set(learn) | set(pretrain)) == 345


def test_drawings_are_those_of_the_archive() -> None:
    archive = resources.files("clare.data").joinpath("embedded/quickdraw.npz")
    with archive.open("rb") as file, np.load(file) as content:
        images, names = content["images"], content["classes"].tolist()
    dataset = load_dataset(DataSettings(dataset="quickdraw", channels=1))
    place = names.index(dataset.classes[17])
    train, _ = dataset.train.batch((dataset.train.labels == 17).nonzero()[:, 0])
    test, _ = dataset.test.batch((dataset.test.labels == 17).nonzero()[:, 0])
    assert np.array_equal(train.pixels[:, 0].numpy(), images[place, :80])
    assert np.array_equal(test.pixels[:, 0].numpy(), images[place, 80:])
    expected = sorted(np.random.RandomState(1993).permutation(345)[145:].tolist())
    assert dataset.classes == tuple(names[place] for place in expected)


def test_drawings_can_be_stored_smaller() -> None:
    dataset = load_dataset(DataSettings(dataset="quickdraw", channels=1, store_size=14))
    assert dataset.test.batch(torch.arange(2))[0].pixels.shape == (2, 1, 14, 14)


def test_a_tree_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    write_tree(tmp_path)
    dataset = load_dataset(folder_settings(tmp_path))
    assert dataset.classes == ("ant", "bee")
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.test.labels.tolist() == [0, 1]
    assert grey_values(dataset) == [0, 1, 2, 50, 51, 52]
    canvas, _ = dataset.train.batch(torch.arange(6))
    assert canvas.sizes.tolist() == [[5, 6], [5, 7], [5, 8]] * 2
    assert dataset.num_skipped == 0


@pytest.mark.parametrize("name", ["imagenet-r", "imagenet-a", "objectnet", "cub", "vtab", "omnibenchmark", "cifar100"])
def test_named_trees_lie_under_the_root(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path / name)
    dataset = load_dataset(DataSettings(dataset=name, root=str(tmp_path), channels=1))
    assert dataset.name == name
    assert dataset.train.store.channels == 1
    assert len(dataset.test) == 2


def test_larger_images_are_stored_smaller(tmp_path: Path) -> None:
    write_tree(tmp_path)
    write_image(tmp_path / "train/ant/9.png", 9, (40, 20))
    canvas, _ = load_dataset(folder_settings(tmp_path, store_size=10)).train.batch(torch.tensor([0, 3]))
    assert canvas.sizes.tolist() == [[5, 6], [10, 20]]


def test_hidden_and_other_files_are_no_images(tmp_path: Path) -> None:
    write_tree(tmp_path)
    write_image(tmp_path / "train/ant/UPPER.PNG", 3)
    for name in ("train/ant/notes.txt", "train/ant/._0.png", "train/readme.md", "train/bee/Thumbs.db"):
        (tmp_path / name).write_text("text")
    (tmp_path / "test/.cache").mkdir()
    assert grey_values(load_dataset(folder_settings(tmp_path))) == [0, 1, 2, 3, 50, 51, 52]


def test_a_bad_image_is_named_or_skipped(tmp_path: Path) -> None:
    write_tree(tmp_path)
    (tmp_path / "train/ant/1.png").write_bytes(b"no image")
    (tmp_path / "train/bee/0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"ant/1\.png.*--skip-bad-images"):
        load_dataset(folder_settings(tmp_path))
    dataset = load_dataset(folder_settings(tmp_path, skip_bad_images=True))
    assert grey_values(dataset) == [0, 2, 51, 52]
    assert dataset.train.labels.tolist() == [0, 0, 1, 1]
    assert dataset.num_skipped == 2


def test_skipping_must_not_empty_a_class(tmp_path: Path) -> None:
    write_tree(tmp_path)
    (tmp_path / "test/bee/0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"no image in '.*test/bee' can be read"):
        load_dataset(folder_settings(tmp_path, skip_bad_images=True))


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    write_tree(tmp_path)
    for part in ("train", "test"):
        (tmp_path / part / "cat").mkdir()
        (tmp_path / part / "cat/notes.txt").write_text("text")
    with pytest.raises(DataError, match=r"train/cat' has no images"):
        load_dataset(folder_settings(tmp_path))


def test_train_and_test_have_the_same_classes(tmp_path: Path) -> None:
    write_tree(tmp_path)
    write_image(tmp_path / "train/cat/0.png", 1)
    for number in range(7):
        write_image(tmp_path / f"test/dog{number}/0.png", 1)
    with pytest.raises(DataError, match=r"only train has 'cat' and only test has 'dog0', .*'dog4', \.\.\.;"):
        load_dataset(folder_settings(tmp_path))


def test_a_missing_tree_tells_the_layout(tmp_path: Path) -> None:
    words = r"imagenet-r', expected .*imagenet-r/\{train,test\}/<class>/<image>; `clare data PRESET` says"
    with pytest.raises(DataError, match=words):
        load_dataset(DataSettings(dataset="imagenet-r", root=str(tmp_path)))
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match=r"/test'; expected"):
        load_dataset(folder_settings(tmp_path))
    (tmp_path / "test").mkdir()
    with pytest.raises(DataError, match="no class folder"):
        load_dataset(folder_settings(tmp_path))


def test_missing_cifar100_tells_both_layouts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar-100-python/.*clare data PRESET --fetch.*cifar100/\{train,test\}"):
        load_dataset(DataSettings(dataset="cifar100", root=str(tmp_path)))


@pytest.mark.parametrize("channels", [1, 3])
def test_cifar100_from_its_own_files(tmp_path: Path, channels: int) -> None:
    data = np.random.RandomState(0).randint(0, 256, (3, 3072)).astype(np.uint8)
    (tmp_path / "cifar-100-python").mkdir()
    for part in ("train", "test"):
        content = pickle.dumps({"data": data, "fine_labels": [0, 1, 1]}, 2)
        (tmp_path / "cifar-100-python" / part).write_bytes(content)
    (tmp_path / "cifar-100-python/meta").write_bytes(pickle.dumps({"fine_label_names": ["apple", "bear"]}, 2))
    dataset = load_dataset(
        DataSettings.model_validate({"dataset": "cifar100", "root": str(tmp_path), "channels": channels})
    )
    assert dataset.classes == ("apple", "bear")
    assert dataset.train.labels.tolist() == [0, 1, 1]
    canvas, _ = dataset.train.batch(torch.arange(3))
    image = Image.fromarray(data[1].reshape(3, 32, 32).transpose(1, 2, 0)).convert("RGB" if channels == 3 else "L")
    expected = np.asarray(image).reshape(32, 32, channels).transpose(2, 0, 1)
    assert np.array_equal(canvas.pixels[1].numpy(), expected)


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(SettingsError, match=r"'data\.dataset' got 'imagenet_r'.*did you mean 'imagenet-r'\?"):
        build_settings(DataSettings, {"dataset": "imagenet_r"}, "data")
    assert all(DataSettings(dataset=name).dataset == name for name in DATASETS)


def cached_settings(tmp_path: Path, **values: object) -> DataSettings:
    """Return settings that read a tree of six training and two test images into a cache file."""
    return folder_settings(tmp_path / "tree", cache=str(tmp_path / "cache"), **{"store": "mapped", **values})


def test_mapped_images_are_those_in_memory(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    (tmp_path / "tree/train/ant/1.png").write_bytes(b"no image")
    mapped, plain = (
        load_dataset(cached_settings(tmp_path, store=store, skip_bad_images=True)) for store in ("mapped", "device")
    )
    assert (mapped.train.store.is_mapped, plain.train.store.is_mapped) == (True, False)
    assert mapped.num_skipped == plain.num_skipped == 1
    for part, other in ((mapped.train, plain.train), (mapped.test, plain.test)):
        canvas, labels = part.batch(torch.arange(len(part)))
        other_canvas, other_labels = other.batch(torch.arange(len(other)))
        assert torch.equal(canvas.pixels, other_canvas.pixels)
        assert torch.equal(canvas.sizes, other_canvas.sizes)
        assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("store", ["mapped", "device", "auto"])
def test_the_next_run_decodes_nothing_whatever_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    write_tree(tmp_path / "tree")
    load_dataset(cached_settings(tmp_path))
    monkeypatch.setattr("clare.data.trees.read_images", None)
    monkeypatch.setattr("clare.data.trees.measure", None)
    dataset = load_dataset(cached_settings(tmp_path, store=store))
    assert grey_values(dataset) == [0, 1, 2, 50, 51, 52]
    assert dataset.train.store.is_mapped is (store == "mapped")


def test_changed_images_are_decoded_again_into_the_same_file(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    notices: list[str] = []
    load_dataset(cached_settings(tmp_path), notice=notices.append)
    files = set((tmp_path / "cache").glob("*.pixels"))
    assert len(files) == len(notices) == 2
    assert {path.name.rsplit("-", 1)[0] for path in files} == {"folder-train", "folder-test"}
    write_image(tmp_path / "tree/train/ant/3.png", 3)
    dataset = load_dataset(cached_settings(tmp_path), notice=notices.append)
    assert grey_values(dataset) == [0, 1, 2, 3, 50, 51, 52]
    assert set((tmp_path / "cache").glob("*.pixels")) == files
    assert len(notices) == 3
    assert "was made from other files or settings and is written anew" in notices[2]


def test_forms_of_the_same_images_lie_side_by_side(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    for values in ({}, {"store_size": 3}, {"channels": 1}, {}):
        dataset = load_dataset(cached_settings(tmp_path, **values))
        assert dataset.train.store.channels == values.get("channels", 3)
        assert min(dataset.train.store.canvas_size) == values.get("store_size", 5)
    assert len(list((tmp_path / "cache").glob("*.pixels"))) == 6


def test_a_machine_without_room_maps_the_images(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    num_bytes = 3 * 5 * (2 * (6 + 7 + 8) + 2 * 6)
    settings = cached_settings(tmp_path, store="auto")
    cpu = torch.device("cpu")
    roomy = load_dataset(settings, Machine(cpu, 2 * num_bytes, 2 * num_bytes))
    assert not roomy.train.store.is_mapped
    tight = load_dataset(settings, Machine(cpu, 2 * num_bytes - 1, 2 * num_bytes - 1))
    assert tight.train.store.is_mapped
    assert tight.test.store.is_mapped
    assert grey_values(tight) == grey_values(roomy)


def test_drawings_stay_in_memory_and_say_so() -> None:
    notices: list[str] = []
    settings = DataSettings(dataset="quickdraw", channels=1, store="mapped")
    assert not load_dataset(settings, notice=notices.append).train.store.is_mapped
    assert notices == ["`data.store` is mapped, but quickdraw is read as a whole, so it stays in memory"]


def test_one_huge_image_is_told_of(tmp_path: Path) -> None:
    write_tree(tmp_path)
    notices: list[str] = []
    load_dataset(folder_settings(tmp_path), notice=notices.append)
    assert notices == []
    write_image(tmp_path / "train/ant/9.png", 9, (400, 20))
    load_dataset(folder_settings(tmp_path), notice=notices.append)
    assert len(notices) == 1
    assert "padded to 20x400; set `data.store_size`" in notices[0]


@pytest.mark.parametrize("max_waiting", [1, 2000, 1 << 26])
def test_images_are_the_same_however_many_are_copied_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_waiting: int
) -> None:
    write_tree(tmp_path)
    write_image(tmp_path / "train/ant/9.png", 9, (40, 20))
    expected = load_dataset(folder_settings(tmp_path, store="mapped", cache=str(tmp_path / "cache"))).train
    for file in (tmp_path / "cache").iterdir():
        file.unlink()
    monkeypatch.setattr("clare.data.trees.MAX_WAITING", max_waiting)
    found = load_dataset(folder_settings(tmp_path)).train
    everything = torch.arange(len(expected))
    assert not found.store.is_mapped
    assert torch.equal(found.store.batch(everything).pixels, expected.store.batch(everything).pixels)


def test_an_image_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path)
    monkeypatch.setattr("clare.data.decode.image_size", lambda path: (2, 2))
    with pytest.raises(DataError, match="grew while it was read"):
        load_dataset(folder_settings(tmp_path))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"store": "pinned"}, "`data.store` is pinned, which needs a GPU"),
        ({"decode": "gpu"}, "`data.decode` is gpu, but this run is on the CPU"),
    ],
)
def test_what_needs_a_gpu_is_refused_without_one(tmp_path: Path, values: dict[str, str], message: str) -> None:
    write_tree(tmp_path)
    with pytest.raises(SettingsError, match=message):
        load_dataset(folder_settings(tmp_path, **values))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_store_of_a_gpu_holds_the_same_images(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    machine = Machine(torch.device("cuda", 0), 1 << 30, 1 << 30)
    for store, device in (("device", "cuda"), ("pinned", "cpu"), ("mapped", "cpu"), ("pinned", "cpu")):
        dataset = load_dataset(cached_settings(tmp_path, store=store), machine)
        assert dataset.train.store.device.type == device
        assert dataset.train.store.flat.is_pinned() is (store == "pinned")
        assert grey_values(dataset) == [0, 1, 2, 50, 51, 52]
