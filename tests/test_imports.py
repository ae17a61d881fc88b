"""The source as text: who may import whom, how long things are, and that public things say what they are."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import clare

ROOT = Path(clare.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FOUNDATION = {
    "errors",
    "files",
    "growth",
    "hub",
    "identity",
    "index",
    "locks",
    "plain",
    "position",
    "record",
    "registry",
    "disk",
    "sealed",
    "seeds",
    "settings",
    "steps",
    "templates",
    "upgrade",
    "version",
}
OUTER = {
    "methods",
    "engine",
    "presets",
    "model",
    "classifier",
    "export",
    "report",
    "testing",
    "runner",
    "cli",
    "serve",
}

# For each part of the package, the parts that it must not import.
FORBIDDEN = {
    "sparse": {"backbones", "tuners", "heads", "data", "metrics", *FOUNDATION, *OUTER},
    "tuners": OUTER,
    "heads": OUTER,
    "backbones": OUTER,
    "data": {"sparse", "tuners", "heads", "backbones", "metrics", *OUTER},
    "methods": {*OUTER - {"methods"}, "data"},
    "engine": {"classifier", "export", "report", "testing", "cli", "runner", "serve"},
    "model": {"classifier", "export", "engine", "presets", "report", "testing", "cli", "runner", "serve"},
    "classifier": {"export", "report", "testing", "cli", "runner", "serve"},
    "export": {"engine", "presets", "report", "testing", "cli", "runner", "serve"},
    "serve": {"export", "engine", "presets", "report", "testing", "runner"},
    "presets": {"classifier", "export", "report", "testing", "cli", "runner", "serve", "model"},
    "testing": {"classifier", "export", "report", "cli", "runner", "serve"},
    "runner": {"classifier", "export", "testing", "cli", "serve"},
    "paper": {"classifier", "export", "testing", "cli", "runner", "serve"},
}

# What reads records alone: the only parts of the package that it may import.
ALLOWED = {
    "metrics": {"errors", "metrics", "record"},
    "report": {
        "errors",
        "files",
        "identity",
        "metrics",
        "plain",
        "position",
        "record",
        "report",
        "sealed",
        "templates",
        "upgrade",
    },
}


def part_of(path: Path) -> str:
    """Return the part of the package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def tree_of(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a file imports anywhere, a name from a module as module.name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def clare_parts(tree: ast.AST) -> set[str]:
    """Return the parts of the package that a file imports."""
    return {name.split(".")[1] for name in imports(tree) if name.startswith("clare.")}


def named(path: Path) -> str:
    """Return the name of a file within the package."""
    return str(path.relative_to(ROOT))


every_file = pytest.mark.parametrize("path", FILES, ids=named)


def test_the_imports_of_a_file_are_found() -> None:
    tree = ast.parse("import clare.a.b\nfrom clare import c\ndef f():\n    from clare.d.e import g\nimport torch")
    assert clare_parts(tree) == {"a", "c", "d"}
    assert part_of(ROOT / "results.py") == "results"
    assert part_of(ROOT / "data" / "store.py") == "data"


@every_file
def test_a_part_imports_only_what_it_may(path: Path) -> None:
    part, found = part_of(path), clare_parts(tree_of(path))
    assert not found & FORBIDDEN.get(part, set())
    assert found <= ALLOWED.get(part, found)
    if part not in ("cli", "__main__"):
        assert "cli" not in found
    if part not in ("cli", "paper", "runner"):
        assert "paper" not in found
    if part in FOUNDATION:
        assert found <= {*FOUNDATION, "sparse"}


def test_every_part_with_rules_exists() -> None:
    parts = {part_of(path) for path in FILES}
    assert {*FORBIDDEN, *ALLOWED} <= parts
    assert parts >= FOUNDATION


@every_file
def test_nothing_is_unpickled(path: Path) -> None:
    tree = tree_of(path)
    names = {name.split(".")[0] for name in imports(tree)}
    if named(path) != "data/cifar.py":
        assert not names & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "save"), ("pickle", "load"), ("pickle", "loads")}
            # A checkpoint that a person names is read as tensors alone.
            assert (node.value.id, node.attr) != ("torch", "load") or named(path) == "backbones/originals.py"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            assert "weights_only=True" in map(ast.unparse, node.keywords)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_the_one_unpickler_is_restricted() -> None:
    classes = [node for node in ast.walk(tree_of(ROOT / "data" / "cifar.py")) if isinstance(node, ast.ClassDef)]
    (unpickler,) = [node for node in classes if any("Unpickler" in ast.unparse(base) for base in node.bases)]
    assert "find_class" in [node.name for node in unpickler.body if isinstance(node, ast.FunctionDef)]


@every_file
def test_files_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 350
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name


def public_things(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the public functions and classes of a module, and the public methods of its classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_things(node.body)


@every_file
def test_public_things_have_a_docstring(path: Path) -> None:
    tree = tree_of(path)
    if tree.body:
        assert ast.get_docstring(tree), "the file itself"
    for node in public_things(tree.body):
        text = ast.get_docstring(node)
        assert text, node.name
        assert text.strip().endswith((".", "?")), node.name
