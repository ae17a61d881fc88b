"""Settings refuse what is wrong in one sentence that names the key, what came and what is allowed."""

from typing import Annotated, Any, ClassVar, Literal

import pytest
from annotated_types import Lt
from pydantic import Field, ValidationError

from clare.errors import SettingsError
from clare.methods import METHODS
from clare.settings import Acts, Settings, build_settings, condition, idle, overlaid


class Inner(Settings):
    """Settings inside others."""

    width: int = Field(4, ge=1, le=64, description="A size.")
    kind: Literal["small", "large"] = Field("small", description="A choice.")


class Outer(Settings):
    """Settings with a part of their own."""

    rate: float = Field(0.1, gt=0, le=1, description="A rate.")
    strength: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field("auto", description="A number or a word.")
    most: int | None = Field(None, ge=1, le=9, description="A number or none.")
    is_wide: bool = Field(False, description="A choice of two.")
    inner: Inner = Field(Inner(), description="A part.")
    name: str = Field(description="Needed.")


def problem(values: dict[str, Any], where: str = "method") -> str:
    with pytest.raises(SettingsError) as caught:
        build_settings(Outer, values, where)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_right_values_build_settings() -> None:
    settings = build_settings(Outer, {"name": "x", "rate": 1, "inner": {"width": 8}}, "method")
    assert settings == Outer(name="x", rate=1.0, inner=Inner(width=8))


@pytest.mark.parametrize("key", ["rate", "strength", "most"])
@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_no_numbers(key: str, value: bool) -> None:
    message = problem({"name": "x", key: value})
    assert message == f"the setting 'method.{key}' got {value}; it takes a number, not true or false"
    assert build_settings(Outer, {"name": "x", "is_wide": value}, "method").is_wide is value


def test_a_wrong_key_names_the_nearest_and_the_allowed() -> None:
    message = problem({"name": "x", "rat": 0.5})
    assert "no setting 'method.rat'" in message
    assert "did you mean 'rate'" in message
    assert "inner, is_wide, most, name, rate, strength" in message


def test_a_wrong_key_inside_a_part_names_the_keys_of_the_part() -> None:
    message = problem({"name": "x", "inner": {"widht": 8}})
    assert "no setting 'method.inner.widht'" in message
    assert "did you mean 'width'" in message
    assert "kind, width" in message
    assert "rate" not in message


def test_a_key_that_is_near_nothing_gets_no_guess() -> None:
    message = problem({"name": "x", "zzz": 1})
    assert "did you mean" not in message
    assert "inner, is_wide, most, name, rate, strength" in message


@pytest.mark.parametrize(
    ("values", "key", "came", "allowed"),
    [
        ({"rate": 0}, "method.rate", "got 0", "greater than 0"),
        ({"rate": 1.5}, "method.rate", "got 1.5", "less than or equal to 1"),
        ({"rate": "fast"}, "method.rate", "got 'fast'", "valid number"),
        ({"rate": float("nan")}, "method.rate", "got nan", ""),
        ({"rate": float("inf")}, "method.rate", "got inf", ""),
        ({"inner": {"width": 65}}, "method.inner.width", "got 65", "less than or equal to 64"),
        ({"inner": {"width": 2.5}}, "method.inner.width", "got 2.5", "integer"),
        ({"inner": {"kind": "tiny"}}, "method.inner.kind", "got 'tiny'", "'small' or 'large'"),
        ({"inner": 3}, "method.inner", "got 3", "Inner"),
    ],
)
def test_a_wrong_value_names_the_key_what_came_and_what_is_allowed(
    values: dict[str, Any], key: str, came: str, allowed: str
) -> None:
    message = problem({"name": "x", **values})
    assert f"'{key}' {came}" in message
    assert allowed in message


def test_a_missing_value_is_named() -> None:
    assert "'method.name' is missing" in problem({})


def test_keys_at_the_top_have_no_prefix() -> None:
    assert "'rate' got 2" in problem({"name": "x", "rate": 2}, where="")


def test_settings_do_not_change() -> None:
    settings = Outer(name="x")
    with pytest.raises(ValidationError, match="frozen"):
        settings.rate = 0.5  # type: ignore[misc]


@pytest.mark.parametrize("name", list(METHODS))
def test_every_setting_of_a_method_is_described_and_its_numbers_are_bounded(name: str) -> None:
    def check(kind: type[Settings]) -> None:
        for key, field in kind.model_fields.items():
            assert field.description, key
            if field.annotation in (int, float):
                bounds = {type(bound).__name__ for bound in field.metadata}
                assert bounds & {"Ge", "Gt"}, key
                assert bounds & {"Le", "Lt"}, key
            if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
                check(field.annotation)

    check(METHODS.get(name).settings_type)


@pytest.mark.parametrize(
    ("came", "said"), [(2, "input should be less than or equal to 1, or 'auto'"), ("atuo", "a valid number")]
)
def test_a_number_or_a_word_is_named_once_with_all_that_it_takes(came: object, said: str) -> None:
    message = problem({"name": "x", "strength": came})
    assert message.startswith(f"the setting 'method.strength' got {came!r};")
    assert said in message
    assert message.endswith("or 'auto'")


class Plain(Settings):
    """A table of one kind."""

    kind: Literal["plain"] = Field("plain", description="Which.")
    scale: float = Field(1.0, gt=0, le=9, description="A factor.")


class Curved(Plain):
    """A table of another kind, with a setting of its own."""

    kind: Literal["curved"] = Field("curved", description="Which.")  # type: ignore[assignment]
    bend: float = Field(0.5, ge=0, le=1, description="How much.")


class Tabled(Settings):
    """Settings of which one is a table of two kinds."""

    line: Plain | Curved = Field(Curved(scale=3.0), description="A table.")


def line(**values: Any) -> Plain | Curved:
    return build_settings(Tabled, {"line": values}, "method").line


def test_a_table_is_of_the_kind_it_says_and_completed_from_the_default() -> None:
    assert line() == line(kind="curved") == Curved(scale=3.0)
    assert line(bend=0.25) == Curved(scale=3.0, bend=0.25)
    assert line(kind="plain") == Plain(scale=3.0)
    assert Tabled(line=Plain(scale=2.0)).line == Plain(scale=2.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "curvd"}, "'method.line.kind' got 'curvd'; it is plain or curved (did you mean 'curved'?)"),
        ({"kind": 3}, "'method.line.kind' got '3'; it is plain or curved"),
        ({"kind": "plain", "bend": 0.3}, "'method.line.bend' got 0.3; it belongs to kind = curved, this is plain"),
        ({"bend": 2}, "'method.line.bend' got 2; input should be less than or equal to 1"),
        ({"scael": 2}, "no setting 'method.line.scael' (did you mean 'scale'?); allowed here: bend, kind, scale"),
    ],
)
def test_a_wrong_table_is_answered_in_a_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        line(**values)
    assert message in str(caught.value)


def test_a_table_is_no_number() -> None:
    with pytest.raises(SettingsError, match=r"'method\.line' got 3; it takes a table of settings"):
        build_settings(Tabled, {"line": 3}, "method")


def test_values_are_laid_over_others_and_another_kind_keeps_what_both_have() -> None:
    base = {"line": {"kind": "curved", "bend": 0.1, "scale": 4.0}}
    assert overlaid(Tabled, base, {"line": {"scale": 5.0}}) == {"line": {"kind": "curved", "bend": 0.1, "scale": 5.0}}
    assert overlaid(Tabled, base, {"line": {"kind": "plain"}}) == {"line": {"kind": "plain", "scale": 4.0}}
    # Nothing was said of the kind, so it was the default's.
    assert overlaid(Tabled, {"line": {"bend": 0.1}}, {"line": {"kind": "plain"}}) == {"line": {"kind": "plain"}}


class Sometimes(Settings):
    """Settings that act beside some values of others alone."""

    acts: ClassVar[Acts] = {
        "inner": {"is_wide": (True,)},
        "steps": {"share": Lt(1), "inner.kind": ("small", "large")},
        "deep": {"inner.kind": ("large",)},
        "foreign": {"inner.absent": ("x",)},
    }

    is_wide: bool = Field(False, description="A choice of two.")
    share: float = Field(1.0, gt=0, le=1, description="A share.")
    steps: int = Field(1, ge=1, le=9, description="A number.")
    deep: int = Field(1, ge=1, le=9, description="A number.")
    foreign: int = Field(1, ge=1, le=9, description="A number.")
    inner: Inner = Field(Inner(), description="A part.")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, []),
        ({"inner": {"width": 8}}, [("m.inner", "it acts where m.is_wide is true")]),
        ({"inner": {"width": 8}, "is_wide": True}, []),
        ({"steps": 2}, [("m.steps", "it acts where m.share is below 1 and m.inner.kind is small or large")]),
        ({"steps": 2, "share": 0.5}, []),
        ({"deep": 2}, [("m.deep", "it acts where m.inner.kind is large")]),
        ({"deep": 2, "is_wide": True, "inner": {"kind": "large"}}, []),
        ({"foreign": 2}, []),
    ],
)
def test_a_setting_that_does_nothing_beside_the_others_is_named(
    values: dict[str, Any], said: list[tuple[str, str]]
) -> None:
    settings = build_settings(Sometimes, values, "m")
    assert list(idle(settings, values, "m.")) == said


@pytest.mark.parametrize("name", list(METHODS))
def test_what_a_method_says_of_settings_names_settings_that_it_has(name: str) -> None:
    kind = METHODS.get(name).settings_type
    for key, conditions in kind.acts.items():
        assert key in kind.model_fields
        assert all(other.split(".")[0] in kind.model_fields for other in conditions)
        assert condition(kind, key, "method.").startswith("method.")


def test_when_a_setting_acts_is_said_the_shorter_way_and_of_settings_that_are_there_alone() -> None:
    ranpac, clare = (METHODS.get(name).settings_type for name in ("ranpac", "clare"))
    assert condition(ranpac, "epochs", "method.") == "method.tuner is not none"
    assert condition(clare, "sparsity", "") == "capacity_aware is true and mask is not none"
    assert condition(clare, "origin", "") == "mask is learnt"
    assert condition(clare, "epochs", "") == ""
