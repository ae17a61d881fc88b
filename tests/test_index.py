"""The index says what the code says."""

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from clare.cli import listing
from clare.cli.listing import families, find_method, resolved
from clare.errors import SettingsError
from clare.index import FILE, read_index
from clare.methods import METHODS
from clare.presets.load import make_experiment, make_setup, preset_names
from clare.registry import load_file

ROOT = Path(__file__).parents[1]


def test_the_index_is_what_the_classes_say() -> None:
    script = load_file(ROOT / "scripts" / "write_index.py", "which a test of the index needs")
    assert (ROOT / "src" / "clare" / FILE).read_text(encoding="utf-8") == script.text(), "run make index"


def test_every_method_and_preset_of_the_package_is_in_the_index() -> None:
    assert [method["name"] for method in read_index()["methods"]] == list(METHODS)
    assert list(read_index()["presets"]) == preset_names()


@pytest.mark.parametrize("name", [*preset_names(), "cifar100-10x10+vits14-dinov2"])
def test_a_preset_is_shown_as_it_would_be_run(name: str) -> None:
    assert resolved(name) == make_experiment(name).model_dump(mode="json")


def test_a_setup_is_an_experiment_but_for_its_method() -> None:
    words = ["data.root=elsewhere", "stream.increment=5", "method.epochs=3"]
    experiment = make_experiment("cifar100-10x10+vits14-dinov2", "linear", words)
    assert make_setup("cifar100-10x10+vits14-dinov2", words).model_dump() == experiment.model_dump(
        exclude={"method", "overrides"}
    )
    with pytest.raises(SettingsError, match=r"there is no setting 'data\.rot'"):
        make_setup("quickdraw", ["data.rot=elsewhere"])


def test_an_unknown_method_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"there is no method 'simplecli' \(did you mean 'simplecil'\?\); known: "):
        find_method("simplecli")


def test_methods_of_other_packages_are_listed_after_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("linear", "clare.methods.linear:Linear", "clare.methods")
    monkeypatch.setattr(listing, "entry_points", lambda group: EntryPoints([entry]))
    assert find_method("linear") == next(each for each in read_index()["methods"] if each["name"] == "linear")
    assert [method["name"] for method in families()["references"]].count("linear") == 2
