"""JSON with a digest of itself: what it says cannot change without a word."""

import json
from pathlib import Path
from typing import Any

import pytest

from clare.errors import RunError
from clare.sealed import SEAL, read_object, seal

VALUES = {"b": [1, 2.5, None, float("inf")], "a": {"ü": True, "x": "y\ud800"}}


def written(path: Path, values: Any) -> Path:
    """Write values as JSON and return the file."""
    path.write_text(json.dumps(values, indent=3))
    return path


@pytest.mark.parametrize("values", [VALUES, {}, {"n": {2: "two", 10: "ten"}}, {"t": (1, (2, 3))}])
def test_what_is_sealed_is_read_however_it_is_written(tmp_path: Path, values: dict[str, Any]) -> None:
    path = written(tmp_path / "a.json", seal(values))
    assert {**json.loads(json.dumps(values)), SEAL: seal(values)[SEAL]} == read_object(path, RunError, "do it")
    backwards = dict(reversed(json.loads(path.read_text()).items()))
    assert read_object(written(path, backwards), RunError, "do it") == backwards


def test_sealing_again_replaces_the_digest() -> None:
    assert seal(seal(VALUES)) == seal(VALUES)
    assert seal({**seal(VALUES), "c": 1})[SEAL] != seal(VALUES)[SEAL]


@pytest.mark.parametrize("change", [{"b": [1, 2.5]}, {"c": 0}, {SEAL: None}, {SEAL: "0" * 64}, {"b": [1.0, 2.5]}])
def test_other_content_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = written(tmp_path / "a.json", {**seal({"b": [1, 2.5, None]}), **change})
    with pytest.raises(RunError, match=r"a\.json is damaged: its content does not fit its digest; do it$"):
        read_object(path, RunError, "do it")


def test_what_was_never_sealed_is_read(tmp_path: Path) -> None:
    assert read_object(written(tmp_path / "a.json", {"b": 1}), RunError, "do it") == {"b": 1}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", r"is not valid JSON \(Expecting"),
        (b"\xff", r"is not valid JSON \('utf-8' codec"),
        (b"[" * 100_000, r"is not valid JSON \(it is nested too deeply\)"),
        (b"9" * 10_000, r"is not valid JSON \(Exceeds the limit"),
    ],
)
def test_what_is_no_json_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(RunError, match=rf"a\.json {reason}.*; do it$"):
        read_object(tmp_path / "a.json", RunError, "do it")


def test_a_file_that_is_not_there_or_no_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"a\.json cannot be read \(No such file or directory\); do it$"):
        read_object(tmp_path / "a.json", RunError, "do it")
    with pytest.raises(RunError, match=r"a\.json holds a list in place of an object; do it$"):
        read_object(written(tmp_path / "a.json", []), RunError, "do it")
