"""Reports read only records: the imports say so."""

import ast
from pathlib import Path

import pytest

import clare.metrics
import clare.report


def imported(package: Path) -> set[str]:
    """The parts of clare that a package imports."""
    names = set()
    for path in package.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names |= {".".join(module.split(".")[:2]) for module in modules if module.split(".")[0] == "clare"}
    return names


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        (clare.metrics, {"clare.errors", "clare.metrics"}),
        (
            clare.report,
            {
                f"clare.{part}"
                for part in ("errors", "files", "metrics", "plain", "position", "record", "report", "sealed", "upgrade")
            },
        ),
    ],
)
def test_only_what_is_allowed_is_imported(package: object, allowed: set[str]) -> None:
    assert imported(Path(package.__path__[0])) <= allowed  # type: ignore[attr-defined]
