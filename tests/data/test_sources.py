"""Data sets are found by name, read in a fixed order, and refused with the layout that was expected."""

import pickle
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

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
    with pytest.raises(DataError, match=r"imagenet-r/train'; expected .*imagenet-r/\{train,test\}/<class>/<image>"):
        load_dataset(DataSettings(dataset="imagenet-r", root=str(tmp_path)))
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match=r"/test'; expected"):
        load_dataset(folder_settings(tmp_path))
    (tmp_path / "test").mkdir()
    with pytest.raises(DataError, match="no class folder"):
        load_dataset(folder_settings(tmp_path))


def test_missing_cifar100_tells_both_layouts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar-100-python/.*CIFAR100\(.*download=True\).*cifar100/\{train,test\}"):
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
