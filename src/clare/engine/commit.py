"""Which state of the source makes a run."""

import os
import subprocess
from pathlib import Path

import clare

CHANGED = "+changes"
VARIABLE = "CLARE_COMMIT"
"""Names the commit where the source is a copy without its history, as on a machine for computing."""


def source_commit(package: Path = Path(clare.__file__).parent) -> str | None:
    """Return the source's commit, with `+changes` where files differ from it, or what CLARE_COMMIT says of a copy."""
    # A package that merely lies below somebody's repository, as in a virtual environment, is not tracked there.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return os.environ.get(VARIABLE) or None
    commit, changes = _git(package, "rev-parse", "HEAD"), _git(package, "status", "--porcelain", "--", ".")
    return commit and f"{commit}{CHANGED if changes else ''}"


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says, or nothing where it is missing or refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
