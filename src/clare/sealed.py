"""JSON that tells of damage: read with care, and sealed with a digest of what it says."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clare.errors import ClareError

SEAL = "digest"
"""The key under which an object carries the digest of all the rest of it."""


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the digest of its content."""
    # Read back, since JSON turns every key into text and the order of keys counts.
    content = json.loads(json.dumps({key: value for key, value in values.items() if key != SEAL}))
    return {**values, SEAL: _digest_of_object(content)}


def check_seal(path: Path, values: Mapping[str, Any], kind: type[ClareError], remedy: str) -> None:
    """Refuse an object that says something else than when it was sealed; one that never was is let through."""
    content = {key: value for key, value in values.items() if key != SEAL}
    if SEAL in values and values[SEAL] != _digest_of_object(content):
        raise kind(f"{path} is damaged: its content does not fit its digest; {remedy}")


def _digest_of_object(content: Mapping[str, Any]) -> str:
    """Return the digest of the one way to write an object."""
    return digest_of(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def read_object(path: Path, kind: type[ClareError], remedy: str) -> dict[str, Any]:
    """Read a file that holds one JSON object, which is what was sealed if it was."""
    return parse_object(path, read_bytes(path, kind, remedy), kind, remedy)


def parse_object(path: Path, data: bytes, kind: type[ClareError], remedy: str) -> dict[str, Any]:
    """Return the JSON object that a file with these bytes holds, which is what was sealed if it was."""
    values = parse_json(path, data, kind, remedy)
    if not isinstance(values, dict):
        raise kind(f"{path} holds a {type(values).__name__} in place of an object; {remedy}")
    check_seal(path, values, kind, remedy)
    return values


def parse_json(path: Path, data: bytes, kind: type[ClareError], remedy: str) -> Any:
    """Return what a file with these bytes says."""
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise kind(f"{path} is not valid JSON (it is nested too deeply); {remedy}") from None
    except ValueError as error:
        raise kind(f"{path} is not valid JSON ({error}); {remedy}") from None


def read_bytes(path: Path, kind: type[ClareError], remedy: str) -> bytes:
    """Read a file, or say in one sentence why that cannot be done."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise kind(f"{path} cannot be read ({error.strerror or error}); {remedy}") from None
