"""The grid of a sweep: values between commas, names of folders, and what is refused before anything runs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clare.errors import SettingsError
from clare.runner.sweep import Axis, Point, make_points, parse_axes, split_values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.9,0.95", ["0.9", "0.95"]),
        (" 0.9 , true ", ["0.9", "true"]),
        ("[1,2],[3,4]", ["[1,2]", "[3,4]"]),
        ("[1,2]", ["[1,2]"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("'a,\"',{x=1,y=[2,3]}", ["'a,\"'", "{x=1,y=[2,3]}"]),
        ('"say \\",\\"",2', ['"say \\",\\""', "2"]),
        ("it's,b[1", ["it's", "b[1"]),
        ("[']',2],3", ["[']',2]", "3"]),
    ],
)
def test_commas_separate_outside_of_lists_and_quotes(text: str, words: list[str]) -> None:
    assert list(split_values(text, f"key={text}")) == words


LEAVES = st.integers() | st.booleans() | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)


@given(st.lists(LEAVES | st.lists(LEAVES | st.lists(LEAVES, max_size=2), max_size=3), min_size=1, max_size=4))
def test_what_is_written_as_toml_is_read_back(values: list[Any]) -> None:
    # JSON writes these values as TOML does.
    text = ",".join(json.dumps(value) for value in values)
    (axis,) = parse_axes([f"method.key={text}"])
    assert list(axis.values) == values


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([], "a sweep needs settings; list values as --set method.sparsity=0.9,0.95, or use `clare compare`"),
        (["method.sparsity"], "--set got 'method.sparsity'; write it as key=value,value"),
        (["=3"], "--set got '=3'; write it as key=value,value"),
        (["method.sparsity="], "which has an empty value"),
        (["method.sparsity=0.9,"], "--set got 'method.sparsity=0.9,', which has an empty value"),
        (["method.x=[1,2"], "in which ] is missing; close every list and quote"),
        (['method.x="a,b'], 'in which " is missing'),
        (["seed=1,2"], "seeds are given with --seeds 1993,1994"),
        (["method.epochs=1,2", " method.epochs=3"], "--set names 'method.epochs' twice; list all its values in one"),
    ],
)
def test_wrong_lists_are_named(overrides: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_axes(overrides)
    assert sentence in str(caught.value)


def test_values_mean_what_toml_says_and_text_otherwise() -> None:
    assert Axis("method.x", ("1e-3", "true", '"1"', "l1", "[1, 2]")).values == (0.001, True, "1", "l1", [1, 2])


def label(**values: Any) -> str:
    """Return the label of a point."""
    return Point("clare", values, ()).label


def test_names_of_folders_are_readable() -> None:
    point = Point("clare", {"method.sparsity": 0.9, "stream.increment": 5, "method.mask": "random"}, ())
    assert point.label == "clare-sparsity=0.9-stream.increment=5-mask=random"
    assert (
        Point("clare", {"method.learning_rate": 0.00001, "method.x": -1}, ()).label == "clare-learning_rate=1e-05-x=-1"
    )
    assert re.fullmatch(r"clare-root=_data_a_b-[0-9a-f]{8}", label(root="/data/a b"))


@given(st.text(max_size=300), st.text(max_size=300))
def test_names_of_folders_are_safe_and_told_apart(first: str, second: str) -> None:
    names = [label(value=text) for text in (first, second)]
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9._=+-]{1,200}", name)
        assert not name.startswith((".", "-"))
    assert (names[0] == names[1]) == (first == second)


def points(preset: Path, *overrides: str, methods: tuple[str, ...] = ("clare",)) -> list[Point]:
    """Return the grid of a preset with two seeds."""
    return make_points(str(preset), methods, parse_axes(overrides), [1, 2])


def test_all_values_are_combined_with_all(tiny_preset: Path) -> None:
    found = points(tiny_preset, "method.sparsity=0.9,0.95", "method.epochs=1,2,3")
    assert [tuple(point.values.values()) for point in found] == [(s, e) for s in (0.9, 0.95) for e in (1, 2, 3)]
    for point in found:
        assert [experiment.seed for experiment in point.experiments] == [1, 2]
        for experiment in point.experiments:
            assert experiment.method["sparsity"] == point.values["method.sparsity"]
            assert experiment.method["epochs"] == point.values["method.epochs"]


def test_without_a_method_the_preset_chooses(tiny_preset: Path) -> None:
    assert {point.method for point in points(tiny_preset, "method.epochs=1,2", methods=())} == {"clare"}


def test_a_setting_goes_to_the_methods_that_have_it(tiny_preset: Path) -> None:
    found = points(tiny_preset, "method.sparsity=0.9,0.95", methods=("clare", "simplecil"))
    assert [point.label for point in found] == ["clare-sparsity=0.9", "clare-sparsity=0.95", "simplecil"]


@pytest.mark.parametrize(
    ("overrides", "methods", "sentence"),
    [
        (["method.sparsty=0.9,0.95"], ("clare",), "no setting 'method.sparsty' (did you mean 'sparsity'?)"),
        (["method.sparsty=0.9"], ("clare", "simplecil"), "no setting 'method.sparsty'"),
        (["method.sparsity=0.9,0.95"], ("simplecil",), "no setting 'method.sparsity'"),
        (["sparsity=0.9,0.95"], ("clare",), "there is no setting 'sparsity' (did you mean 'method.sparsity'?)"),
        (["method.sparsity=0.9,1.5", "method.epochs=1,2"], ("clare",), "the setting 'method.sparsity' got 1.5"),
        (["method.sparsity=0.9;0.95"], ("clare",), "the setting 'method.sparsity' got '0.9;0.95'"),
        (["method.sparsity=[0.9,0.95]"], ("clare",), "the setting 'method.sparsity' got [0.9, 0.95]"),
        (["method.sparsity=0.9,0.95,0.90"], ("clare",), "'clare method.sparsity=0.9' is listed twice"),
        (["method.epochs=1,1.0"], ("clare",), "'clare method.epochs=1.0' is the same as 'clare method.epochs=1'"),
        (["method.name=clare,linear"], ("clare",), "the method is chosen with --method NAME"),
        (["method.epochs=1,2"], ("clair",), "there is no method 'clair'"),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_runs(
    tiny_preset: Path, overrides: list[str], methods: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        points(tiny_preset, *overrides, methods=methods)
    assert sentence in str(caught.value)


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(SettingsError, match=r"there is no preset 'quikdraw' \(did you mean 'quickdraw'\?\)"):
        points(Path("quikdraw"), "method.epochs=1,2", methods=())


def test_a_grid_that_nobody_can_run_is_refused(tiny_preset: Path) -> None:
    many = ",".join(str(number) for number in range(1, 101))
    with pytest.raises(SettingsError, match="the grid has 2000000 runs, more than 10000; list fewer values"):
        points(tiny_preset, f"method.epochs={many}", f"method.batch_size={many}", f"method.learning_rate={many}")


def test_a_lone_combination_that_is_refused_is_kept(tiny_preset: Path) -> None:
    kinds = "method.head.kind=prototype,aligned"
    found = points(tiny_preset, kinds, methods=("linear", "simplecil"))
    assert [point.refusal is None for point in found] == [True, True, True, False]
    assert found[-1].experiments == ()
    assert "got 'aligned'; it is prototype" in str(found[-1].refusal)
