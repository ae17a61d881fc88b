"""What is known of data sets is complete where presets need it, and what is here is counted and compared."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from data_worlds import write_cifar, write_tree

from clare.data.catalogue import CATALOGUE, Facts
from clare.data.inventory import Inventory, differences, folder_of, layout_of, take_inventory
from clare.data.settings import DATASETS, DataSettings
from clare.data.sources import load_dataset
from clare.errors import DataError

ADDRESS = re.compile(r"https://[a-z0-9.-]+/\S*")


def settings(root: Path, dataset: str) -> DataSettings:
    """Return settings for a data set below a folder."""
    return DataSettings(dataset=dataset, root=str(root))


def test_every_data_set_with_a_name_is_known() -> None:
    assert set(CATALOGUE) == set(DATASETS) - {"folder"}


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_facts_are_whole(name: str) -> None:
    facts = CATALOGUE[name]
    assert facts.title
    assert facts.licence
    assert ADDRESS.fullmatch(facts.page)
    if facts.archive is not None:
        assert ADDRESS.fullmatch(facts.archive.address)
        assert facts.archive.address in facts.archive.where
        # A sum that the publisher gives, or a file that the Hub compares itself.
        assert (facts.archive.md5 is None) == (facts.archive.hub is not None)
        assert facts.archive.md5 is None or re.fullmatch("[0-9a-f]{32}", facts.archive.md5)


def test_the_terms_of_objectnet_are_told() -> None:
    assert "forbids to tune the parameters of any model" in CATALOGUE["objectnet"].licence


@pytest.mark.parametrize("name", ["quickdraw", "quickdraw-pretrain"])
def test_the_drawings_are_as_many_as_the_catalogue_says(name: str, tmp_path: Path) -> None:
    found = take_inventory(settings(tmp_path, name))
    assert found is not None
    assert differences(found, CATALOGUE[name]) == []
    assert "in the package" in found.summary


def test_a_tree_is_counted(tmp_path: Path) -> None:
    write_tree(tmp_path / "imagenet-r", num_classes=4, num_train=3, num_test=2)
    found = take_inventory(settings(tmp_path, "imagenet-r"))
    assert found == Inventory(4, 12, 8, tmp_path / "imagenet-r")
    assert found.summary == f"4 classes, 12 training and 8 test images in '{tmp_path / 'imagenet-r'}'"
    assert take_inventory(DataSettings(dataset="folder", root=str(tmp_path / "imagenet-r"))) == found


def test_cifar100_is_counted_in_both_of_its_forms(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "cifar100")
    assert folder_of(wanted) == tmp_path / "cifar-100-python"
    assert "cifar100/{train,test}/<class>/<image>" in layout_of(wanted)
    write_cifar(tmp_path / "cifar-100-python", num_classes=5)
    assert take_inventory(wanted) == Inventory(5, 10, 10, tmp_path / "cifar-100-python")
    other = settings(tmp_path / "other", "cifar100")
    write_tree(tmp_path / "other" / "cifar100")
    assert take_inventory(other) == Inventory(3, 9, 6, tmp_path / "other" / "cifar100")


def test_cifar100_is_looked_for_where_a_run_reads_it(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "cifar100")
    (tmp_path / "cifar100").mkdir()
    assert folder_of(wanted) == tmp_path / "cifar-100-python"
    write_tree(tmp_path / "cifar100")
    write_cifar(tmp_path / "cifar-100-python", num_classes=5)
    found = take_inventory(wanted)
    assert found is not None
    assert found.num_classes == len(load_dataset(wanted).classes) == 5


def test_nothing_and_an_empty_folder_are_nothing(tmp_path: Path) -> None:
    assert take_inventory(settings(tmp_path, "objectnet")) is None
    (tmp_path / "objectnet").mkdir()
    assert take_inventory(settings(tmp_path, "objectnet")) is None
    assert layout_of(settings(tmp_path, "objectnet")) == f"{tmp_path}/objectnet/{{train,test}}/<class>/<image>"


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path / "objectnet")
    (tmp_path / "objectnet" / "test").rename(tmp_path / "objectnet" / "val")
    with pytest.raises(DataError, match="there is no folder"):
        take_inventory(settings(tmp_path, "objectnet"))


def test_numbers_that_differ_are_told_and_quoted_ones_are_uncertain() -> None:
    facts = Facts("A", "https://example.org/", "none", num_classes=3, num_train=9, num_test=6, num_images=15)
    assert differences(Inventory(3, 9, 6, None), facts) == []
    found = differences(Inventory(2, 1_000, 6, None), facts)
    assert [difference.text for difference in found] == [
        "3 classes were expected and 2 are here",
        "9 training images were expected and 1,000 are here",
        "15 images in all were expected and 1,006 are here",
    ]
    assert all(difference.is_certain for difference in found)
    quoted = differences(Inventory(2, 1_000, 6, None), replace(facts, is_quoted=True))
    assert [difference.is_certain for difference in quoted] == [True, False, False]
    assert differences(Inventory(1, 1, 1, None), Facts("B", "https://example.org/", "none")) == []
