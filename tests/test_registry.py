"""A registry gives back what was added, in order, answers wrong names, and finds classes in files and packages."""

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest

from clare.errors import SettingsError
from clare.methods import METHODS
from clare.methods.base import Method
from clare.registry import ClassRegistry, Registry, is_file_name


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


class Shape(ABC):
    """What the classes of these tests are."""

    name: str
    summary: str

    @abstractmethod
    def area(self) -> float:
        """Return how large it is."""


class Point(Shape):
    name = "point"
    summary = "has no area"

    def area(self) -> float:
        return 0.0


def shapes() -> ClassRegistry[Shape]:
    registry: ClassRegistry[Shape] = ClassRegistry("shape", Shape, "clare.test-shapes")
    registry.add("point", Point)
    return registry


SHAPES = """
from test_registry import Point, Shape


class Square(Point):
    name = "square"

    def area(self):
        return 1.0


class Again(Point):
    pass


class Odd(Point):
    name = "../odd"


class Nameless(Shape):
    def area(self):
        return 1.0


class Empty(Shape):
    name = "empty"
    summary = "has no area at all"


class Thing:
    pass


number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shapes.py").write_text(SHAPES)
    return tmp_path / "shapes.py"


def test_a_name_with_a_file_is_told_from_others() -> None:
    assert all(map(is_file_name, ("a.py:B", "a.py", "/x/y.py:Z", "C:\\x.py:Y", "a.py:")))
    assert not any(map(is_file_name, ("clare", "aper-adapter", "py", "a.pyx")))


def test_a_class_in_a_file_is_found_by_its_path(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    registry = shapes()
    square = registry.named(f"{file}:Square")
    assert square().area() == 1.0
    assert registry.named(f"{file}:Square") is square
    assert registry.get(f"{file}:Square") is square
    assert registry.name_of(square) == f"{file}:Square"
    assert registry.name_of(Point) == "point"
    assert list(registry) == ["point"]
    monkeypatch.chdir(tmp_path)
    assert registry.get("shapes.py:Square") is square


def test_a_name_that_was_read_finds_only_what_was_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry = shapes()
    monkeypatch.chdir(tmp_path)
    modules = set(sys.modules)
    with pytest.raises(SettingsError, match=r"what was read asks for the shape shapes\.py:Square, a file.*--shape"):
        registry.get("shapes.py:Square")
    with pytest.raises(SettingsError, match=r"mine asks for the shape .* name it: --shape 'my shapes\.py:A', or"):
        registry.get("my shapes.py:A", "mine")
    assert set(sys.modules) == modules
    square = registry.named("shapes.py:Square")
    for name in ("shapes.py:Square", "./shapes.py:Square", f"{file}:Square"):
        assert registry.get(name) is square
    # Another file of the same name from elsewhere is another file.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "shapes.py").write_text(SHAPES)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match="no folder or preset makes a file run"):
        registry.get("shapes.py:Square")


def test_what_a_person_names_is_told_from_what_was_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = shapes()
    monkeypatch.chdir(file.parent)
    assert registry.is_same("shapes.py:Square", f"{file}:Square")
    assert registry.is_same("point", "point")
    assert registry.is_same("point", Point)
    for other in ("shapes.py:Again", "point", "elsewhere/shapes.py:Square", Point):
        assert not registry.is_same("shapes.py:Square", other)


def test_a_class_that_is_given_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = shapes()
    assert registry.named(Point) is Point

    class Dot(Point):
        name = "dot"

    assert registry.named(Dot) is registry.named(Dot) is registry.get("dot") is Dot
    assert registry.name_of(Dot) == "dot"
    monkeypatch.chdir(tmp_path)
    assert registry.named(Dot, "dots.py:Dot") is registry.get("dots.py:Dot") is Dot
    with pytest.raises(SettingsError, match="the class Thing is no shape but"):
        registry.named(type("Thing", (), {}))
    with pytest.raises(SettingsError, match="the class Again is named 'dot' as another shape is"):
        registry.named(type("Again", (Point,), {"name": "dot"}))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("shapes.py:Sqare", "shapes.py has no class 'Sqare' (did you mean 'Square'?); it holds Square, Again, Odd, "),
        ("shapes.py", "'shapes.py' names no class; write it as shapes.py:Class"),
        ("shapes.py:", "'shapes.py:' names no class; write it as shapes.py:Class"),
        ("shapes.py:Thing", "'shapes.py:Thing' is no shape but <class "),
        ("shapes.py:number", "'shapes.py:number' is no shape but 3; make it a subclass of test_registry.Shape"),
        ("shapes.py:Again", "'shapes.py:Again' is named 'point' as another shape is; give its class another `name`"),
        ("shapes.py:Nameless", "'shapes.py:Nameless' has no `name`; a shape needs one, see test_registry.Shape"),
        ("shapes.py:Empty", "'shapes.py:Empty' has no `area`; a shape needs one"),
        ("shapes.py:Odd", "'shapes.py:Odd' is named '../odd'; a name is made of letters"),
        ("shape.py:Square", "there is no file shape.py, which holds the shape 'shape.py:Square'; give its path"),
        ("line.py:X", "line.py line 3 raises ZeroDivisionError: division by zero; correct the file"),
        ("inner.py:X", "inner.py line 4 raises JSONDecodeError: Expecting property name "),
        ("syntax.py:X", "syntax.py line 2 raises SyntaxError: "),
        ("imports.py:X", "imports.py line 1 raises ModuleNotFoundError: No module named 'not_here'; correct"),
        ("nothing.py:X", "nothing.py has no class 'X'; it holds no shape"),
    ],
)
def test_whatever_is_wrong_with_a_file_is_one_sentence(
    file: Path, monkeypatch: pytest.MonkeyPatch, given: str, sentence: str
) -> None:
    monkeypatch.chdir(file.parent)
    texts = {
        "line": "x = 1\n\nx / 0\n",
        # The line to look at is the file's own, also when a library raised.
        "inner": "import json\n\n\njson.loads('{')\n",
        "syntax": "x = 1\nclass X(\n",
        "imports": "import not_here\n",
        "nothing": "",
    }
    for name, text in texts.items():
        (file.parent / f"{name}.py").write_text(text)
    modules = set(sys.modules)
    with pytest.raises(SettingsError) as caught:
        shapes().named(given)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    broken = [name for name in set(sys.modules) - modules if name.startswith(("line_", "syntax_", "imports_"))]
    assert not broken


def test_two_files_cannot_bring_the_same_name(file: Path, tmp_path: Path) -> None:
    registry = shapes()
    registry.named(f"{file}:Square")
    (tmp_path / "other.py").write_text(SHAPES)
    with pytest.raises(SettingsError, match="is named 'square' as another shape is"):
        registry.named(f"{tmp_path / 'other.py'}:Square")


PLUGIN = """
PLACE = "here"

from clare.methods.simplecil import SimpleCil


class Plugged(SimpleCil):
    name = "plugged"
    summary = "comes with another package"
"""


def plugin(folder: Path, entries: str) -> str:
    """Install a package into a folder, and return code that runs the command line with it."""
    (folder / "plugin.py").write_text(PLUGIN)
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[clare.methods]\n{entries}\n")
    return f"import sys; sys.path.insert(0, {str(folder)!r}); from clare.cli.main import main; main()"


StartPython = Callable[..., "subprocess.Popen[str]"]


def test_another_package_brings_a_method(tmp_path: Path, tiny_preset: Path, start_python: StartPython) -> None:
    code = plugin(tmp_path, "plugged = plugin:Plugged")
    listing, _ = start_python("-c", code, "methods").communicate()
    assert "plugged " in listing
    assert "comes with another package" in listing
    command = ("train", tiny_preset, "--method", "plugged", "--out", tmp_path / "run")
    process = start_python("-c", code, *command)
    output, messages = process.communicate()
    assert process.returncode == 0, messages
    assert "plugged, in percent" in output
    assert '"name": "plugged"' in (tmp_path / "run" / "model" / "model.json").read_text()


@pytest.mark.parametrize(
    ("entries", "name", "sentence"),
    [
        (
            "clare = plugin:Plugged",
            "l2p",
            "the method 'clare' of the package plugin has a name that is taken; uninstall",
        ),
        (
            "other = plugin:Plugged",
            "other",
            "the method 'other' of the package plugin calls itself 'plugged'; make the",
        ),
        (
            "plugged = plugin:Plug",
            "plugged",
            "the method 'plugged' of the package plugin cannot be loaded: AttributeErr",
        ),
        (
            "plugged = plugin:PLACE",
            "plugged",
            "the method 'plugged' of the package plugin is no method but 'here'; make",
        ),
    ],
)
def test_a_package_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str, name: str, sentence: str
) -> None:
    plugin(tmp_path, entries)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plugin", raising=False)
    registry: ClassRegistry[Method] = ClassRegistry("method", Method, "clare.methods")
    registry.add("clare", METHODS.get("clare"))
    with pytest.raises(SettingsError) as caught:
        registry.get(name)
    assert str(caught.value).startswith(sentence)
