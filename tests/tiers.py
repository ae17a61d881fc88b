"""Which methods `make test` tries in full; of the others it tries that they learn, and `make test-all` the rest."""

from collections.abc import Iterable
from typing import Any

import pytest

CORE = (
    "aper-adapter",
    "clare",
    "clare-plus",
    "coda-prompt",
    "dualprompt",
    "ease",
    "finetune",
    "full-finetune",
    "inflora",
    "joint",
    "l2p",
    "linear",
    "ranpac",
    "sdlora",
    "sema",
    "simplecil",
)
"""The paper's own methods and those that it compares with."""


def tiered(names: Iterable[str]) -> list[Any]:
    """Return names of methods for a parametrisation, those outside the core as slow ones."""
    return [pytest.param(name, marks=[] if name in CORE else [pytest.mark.slow]) for name in names]
