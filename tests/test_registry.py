"""A registry gives back what was added, in order, and answers wrong names."""

import pytest

from clare.errors import SettingsError
from clare.methods import METHODS
from clare.registry import Registry


def colours() -> Registry[int]:
    registry: Registry[int] = Registry("colour")
    for name, value in (("red", 1), ("green", 2), ("blue", 3)):
        registry.add(name, value)
    return registry


def test_items_come_back_by_name_and_in_order() -> None:
    assert list(colours()) == ["red", "green", "blue"]
    assert [colours().get(name) for name in colours()] == [1, 2, 3]


def test_a_wrong_name_is_answered_with_the_nearest_and_all_names() -> None:
    with pytest.raises(SettingsError, match=r"no colour 'gren'.*did you mean 'green'.*known: red, green, blue"):
        colours().get("gren")


def test_a_far_name_is_answered_without_a_guess() -> None:
    with pytest.raises(SettingsError, match="no colour 'xyz'") as caught:
        colours().get("xyz")
    assert "did you mean" not in str(caught.value)


def test_a_name_cannot_be_taken_twice() -> None:
    registry = colours()
    with pytest.raises(SettingsError, match="colour 'red' is registered twice"):
        registry.add("red", 9)
    assert registry.get("red") == 1


def test_the_methods_are_registered_under_their_own_names() -> None:
    assert {"clare", "finetune", "simplecil"} <= set(METHODS)
    for name in METHODS:
        kind = METHODS.get(name)
        assert kind.name == name
        assert kind.summary
