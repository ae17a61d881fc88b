"""From the settings of earlier releases to today's: the head was one flat table, which also said what it read.

What was saved then is read through `upgraded_preset` and `upgraded_method`; what a user types is answered with the
name that a setting has now.
"""

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "head.strategy": "head.kind",
    "head.read_blocks": "features.blocks",
    "head.read_patches": "features.patches",
    "head.read_centre": "features.centre",
    "head.read_looks": "features.views",
    "num_projected": "head.num_projected",
    "ridge": "head.ridge",
    "precision": "head.precision",
}
"""Settings of a method under the names they had, and those they have; the last three are RanPAC's."""

RENAMED_KINDS = {"projected": "ridge"}
"""Kinds of heads under the names they had, and those they have."""

KINDS_WITH = {
    "form": {"trained", "aligned", "discriminant", "quadratic", "projected"},
    "align_epochs": {"aligned"},
    "align_samples": {"aligned"},
    "align_learning_rate": {"aligned"},
    "align_batch_size": {"aligned"},
    "shrinkage": {"aligned", "discriminant", "quadratic"},
    "own_share": {"quadratic"},
    "num_directions": {"quadratic"},
    "num_projected": {"projected"},
    "ridge_share": {"projected"},
}
"""Settings of the flat table that acted under some of its strategies alone."""

UNTRAINED = {"linear", "simplecil", "aper-adapter"}
"""Methods without a task's training of rows, so that what was said of it did nothing."""

OWN_FEATURES = {"full-finetune", "ease", "l2p", "dualprompt", "coda-prompt"}
"""Methods that make features of their own, so that they had to be told to read nothing else."""


def upgraded_preset(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a preset's file, of whatever release, under today's names."""
    result = dict(values)
    if isinstance(values.get("method"), dict):
        result["method"] = upgraded_method(values["method"])
    for key in ("methods", "datasets", "presets"):
        if isinstance(tables := values.get(key), dict):
            upgraded = {
                name: upgraded_method(table, name) if key == "methods" else upgraded_preset(table)
                for name, table in tables.items()
                if isinstance(table, dict)
            }
            result[key] = tables | upgraded
    return result


def upgraded_experiment(values: dict[str, Any]) -> dict[str, Any]:
    """Return a saved experiment, of whatever release, under today's names."""
    result = upgraded_preset(values)
    if isinstance(values.get("overrides"), list):
        result["overrides"] = [upgraded_override(str(text)) for text in values["overrides"]]
    return result


def upgraded_override(text: str) -> str:
    """Return a `--set` argument under today's names."""
    key, equals, value = text.partition("=")
    section, _, rest = key.partition(".")
    if section != "method" or rest not in RENAMED:
        return text
    return f"method.{RENAMED[rest]}{equals}{RENAMED_KINDS.get(value, value)}"


def upgraded_method(values: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return settings of a method under today's names, without those of a flat head that did nothing."""
    method = str(values.get("name", name))
    head = values.get("head", {})
    names = {f"head.{key}" for key in head} if isinstance(head, dict) else set()
    names |= values.keys() if method == "ranpac" else set()
    if not names & RENAMED.keys():
        return values
    result: dict[str, Any] = {key: value for key, value in values.items() if key != "head"}
    told = dict(head)
    features = {
        new.partition(".")[2]: told.pop(old.partition(".")[2])
        for old, new in RENAMED.items()
        if new.startswith("features.") and old in names
    }
    if features and method not in OWN_FEATURES:
        result["features"] = {**values.get("features", {}), **features}
    if method == "ranpac":
        moved = {key: result.pop(key) for key in ("num_projected", "ridge", "precision") if key in result}
        result["head"] = {"kind": "ridge", **{key: told[key] for key in ("scale",) if key in told}, **moved}
    elif told:
        result["head"] = _of_its_kind(told, method)
    return result


def _of_its_kind(head: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return what acted of a flat head, if it says how its rows came about, and otherwise all of it."""
    if "strategy" not in head:
        return dict(head)
    strategy = head["strategy"]
    idle = {key for key, kinds in KINDS_WITH.items() if strategy not in kinds}
    if method in UNTRAINED and strategy != "trained":
        idle |= {"learnt_scale"} | ({"scale"} if strategy in ("discriminant", "quadratic") else set())
    kept = {key: value for key, value in head.items() if key != "strategy" and key not in idle}
    return {"kind": RENAMED_KINDS.get(strategy, strategy), **kept}
