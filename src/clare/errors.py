"""Errors a user can act on: each message says what is wrong, what came, and what to do."""

import difflib
from collections.abc import Iterable


class ClareError(Exception):
    """Any mistake in settings, data, models or runs that the user can correct."""

    exit_code = 2


class SettingsError(ClareError):
    """A setting, preset or method name that does not exist or is out of bounds."""


class DataError(ClareError, ValueError):
    """Images, labels or folders that cannot be used as they are."""


class BackboneError(ClareError):
    """A backbone that is not a plain vision transformer, or weights that do not fit it."""


class ModelError(ClareError):
    """A model folder that cannot be read, or classes that cannot be learnt."""


class RunError(ClareError):
    """A run folder that belongs to another run, or cannot be written."""


class DivergedError(ClareError):
    """A task whose loss stopped being a number; the learner is back at the task's start."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a clause that suggests the nearest allowed name, or nothing when none is near."""
    matches = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f" (did you mean '{matches[0]}'?)" if matches else ""
