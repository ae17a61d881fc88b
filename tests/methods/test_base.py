"""What a reader of the base class must hold in mind, and who may ask what a method is."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

import clare
from clare.backbones.vit import Backbone
from clare.methods.base import Method
from clare.methods.simplecil import SimpleCil, SimpleCilSettings

ROOT = Path(clare.__file__).parent
OUTSIDE = sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "methods")
MEMBERS = {"name", "summary", "family", "settings_type", "fixed_shapes"}
MEMBERS |= {"backbone", "settings", "seed", "head", "tasks", "classes", "learn", "features", "classify", "loss"}


def test_the_base_class_has_fifteen_members(tiny_backbone: Callable[..., Backbone]) -> None:
    """Nothing of nn.Module, nothing private."""
    method = SimpleCil(tiny_backbone(), SimpleCilSettings(), 0)
    inherited = dir(nn.Module()) + list(vars(nn.Module()))
    declared = {*vars(Method), *Method.__annotations__, *vars(method), *dict(method.named_children())}
    assert {name for name in declared - set(inherited) if not name.startswith("_")} == MEMBERS
    assert len(MEMBERS) == 15


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_asks_which_method_it_is(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\.(features|classify|loss|learn) is (not )?\w", text)
    assert not re.search(r"from clare\.methods\.(_shared|(?!base\b|mistakes\b|protocols\b|state\b)\w+) import", text)
    assert not re.search(r"\bmethod\.name (==|in)\b", text)
