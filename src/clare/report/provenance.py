"""Where figures come from: settings, environment and the command that repeats a run."""

import shlex
from collections.abc import Mapping, Sequence

from clare.identity import flatten
from clare.report.record import RunRecord

# These repeat the run's label or its other settings, in words or as the user typed them.
NOT_SETTINGS = ("description", "overrides", "method.name")


def flat_settings(run: RunRecord) -> dict[str, str]:
    """The settings of a run as dotted keys and JSON values."""
    return {key: value for key, value in flatten(run.preset).items() if key not in NOT_SETTINGS}


def shared_facts(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The facts that are the same everywhere."""
    return {key: value for key, value in facts[0].items() if all(each.get(key) == value for each in facts)}


def differing_keys(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys whose values differ among those that have them; what only one has is its own affair."""
    keys = dict.fromkeys(key for each in facts for key in each)
    return [key for key in keys if len({each[key] for each in facts if key in each}) > 1]


def reproduce_command(run: RunRecord) -> str:
    """The command line that repeats a run."""
    method = run.preset.get("method")
    # A method of one's own is found by its file and class, not by the name it gives itself.
    given = str(method.get("name", run.method)) if isinstance(method, dict) else run.method
    words = ["clare", "train", str(run.preset["name"]), "--method", given, "--seed", str(run.preset["seed"])]
    for override in run.preset.get("overrides") or []:
        words += ["--set", str(override)]
    return shlex.join(words)
