"""Whose folder it is."""

import json
from pathlib import Path

import pytest

from clare.errors import RunError
from clare.files import write_json
from clare.report.write import FILE, describe_comparison, holder_of, take_folder

MINE = describe_comparison("quickdraw", ["clare", "ease"], ["method.epochs=2"], [1993, 1994])


def test_a_comparison_finds_its_folder_again(tmp_path: Path) -> None:
    default = tmp_path / "quickdraw"
    others = [{**MINE, "methods": ["linear"]}, {**MINE, "seeds": [1993]}, {**MINE, "overrides": []}]
    for number, other in enumerate(others, 1):
        folder = take_folder(None, default, other)
        assert folder == (default if number == 1 else tmp_path / f"quickdraw-{number}")
        write_json(folder / FILE, other)
    mine = take_folder(None, default, MINE)
    assert mine == tmp_path / "quickdraw-4"
    write_json(mine / FILE, MINE)
    swapped = describe_comparison("quickdraw", ["ease", "clare"], ["method.epochs=2"], [1994, 1993])
    assert take_folder(None, default, swapped) == mine
    assert take_folder(mine, default, swapped) == mine
    assert [take_folder(None, default, other) for other in others] == [
        default,
        tmp_path / "quickdraw-2",
        tmp_path / "quickdraw-3",
    ]


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"preset": "quickdraw-20x10"}, "with the preset quickdraw-20x10 and not quickdraw"),
        ({"methods": ["linear"]}, "with the methods linear and not clare,ease"),
        ({"overrides": []}, "with the overrides none and not method.epochs=2"),
        ({"seeds": [1]}, "with the seeds 1 and not 1993,1994"),
    ],
)
def test_a_folder_that_another_holds_is_refused(tmp_path: Path, other: dict[str, object], difference: str) -> None:
    write_json(tmp_path / FILE, {**MINE, **other})
    with pytest.raises(RunError) as caught:
        take_folder(tmp_path, tmp_path / "unused", MINE)
    assert str(caught.value).startswith(f"{tmp_path} holds another comparison, {difference}; give another --out")


def test_a_folder_of_an_older_version_is_told_by_its_methods(tmp_path: Path) -> None:
    summary = {"clare": {"method": "clare"}, "ease, λ = 2": {"method": "ease"}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert take_folder(tmp_path, tmp_path / "unused", MINE) == tmp_path
    with pytest.raises(RunError, match="with the methods clare,ease and not linear"):
        take_folder(tmp_path, tmp_path / "unused", {**MINE, "methods": ["linear"]})
    (tmp_path / "summary.json").write_text(json.dumps({**summary, "raising-1993": {"failed": "diverged"}}))
    assert take_folder(tmp_path, tmp_path / "unused", MINE) == tmp_path


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    for text in ("{", "[]"):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(RunError, match=rf"{FILE} .*choose another folder"):
            holder_of(tmp_path)
