"""`clare predict`, `inspect`, `evaluate`, `undo`, `rename` and `remove` on a taught model."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from own_worlds import content, taught_model, write_pictures
from PIL import Image
from typer.testing import CliRunner, Result

from clare.classifier.classifier import load
from clare.cli.main import app
from clare.model.folder import read_manifest, save_model, state_bytes
from clare.model.records import ClassInfo


def invoke(*arguments: str | Path, code: int = 0) -> Result:
    """Run a command on a wide terminal."""
    words = [str(word) for word in arguments]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "240"}, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the folder of a model that knows cat, dog, bus and van."""
    return taught_model(tmp_path).path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return pictures of cat, dog and of a class that was not taught."""
    return write_pictures(tmp_path / "pictures", "cat", "dog", "yak", number=4, seed=7)


def test_files_folders_and_patterns_are_named(model: Path, pictures: Path) -> None:
    lines = invoke("predict", model, pictures / "cat" / "00.png", "--top", "2").stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{pictures / 'cat' / '00.png'}: cat ")
    assert lines[0].count("%") == 2
    assert len(invoke("predict", model, pictures).stdout.splitlines()) == 12
    assert len(invoke("predict", model, f"{pictures}/*/0[01].png").stdout.splitlines()) == 6


def test_json_lines_and_csv_hold_the_same(model: Path, pictures: Path, tmp_path: Path) -> None:
    printed = invoke("predict", model, pictures / "dog", "--json", "--top", "3").stdout.splitlines()
    values = [json.loads(line) for line in printed]
    assert [Path(line["image"]).name for line in values] == ["00.png", "01.png", "02.png", "03.png"]
    assert {line["guesses"][0]["name"] for line in values} == {"dog"}
    assert all(len(line["guesses"]) == 3 for line in values)
    output = invoke("predict", model, pictures / "dog", "--csv", tmp_path / "out.csv", "--top", "3").output
    assert "4 pictures" in output
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, line in zip(rows, values, strict=True):
        assert row["image"] == line["image"]
        assert row["name_1"] == line["guesses"][0]["name"]
        assert float(row["probability_3"]) == line["guesses"][2]["probability"]
        assert float(row["unknown"]) == line["unknown"]
        assert (row["is_unknown"] == "true") == line["is_unknown"]


def test_a_threshold_decides_what_is_none_of_these(model: Path, pictures: Path) -> None:
    assert "none of these?" not in invoke("predict", model, pictures, "--threshold", "1").output
    assert invoke("predict", model, pictures, "--threshold", "0").output.count("none of these?") == 12
    assert invoke("predict", model, pictures, "--threshold", "2", code=2)


def test_unreadable_files_are_named_and_do_not_stop_the_rest(model: Path, pictures: Path) -> None:
    (pictures / "cat" / "notes.png").write_text("no image")
    result = invoke("predict", model, pictures / "cat", pictures / "nothing.png", code=1)
    assert len(result.stdout.splitlines()) == 4
    errors = " ".join(result.stderr.split())
    assert f"error: '{pictures / 'cat' / 'notes.png'}' cannot be read as an image" in errors
    assert "--skip-bad-images" not in errors
    assert f"error: there is no file '{pictures / 'nothing.png'}'" in errors
    (pictures / "hollow").mkdir()
    assert "has no images" in invoke("predict", model, pictures / "hollow", code=1).stderr


def test_inspect_shows_all_there_is(model: Path, tmp_path: Path) -> None:
    opened = load(model, device="cpu")
    output = invoke("inspect", model, "--plot", tmp_path / "capacity.png").output
    assert f"{model}: version 3, 4 classes, method clare" in output
    assert f"hash {opened.parts.backbone.fingerprint}" in output
    assert "size on disk" in output
    words = output.split()
    for info in opened.classes:
        place = words.index(info.name)
        assert words[place + 1 : place + 4] == [str(info.task), info.taught_at[:10], str(info.num_images)]
    assert opened.claims is not None
    for task, counts in enumerate(opened.claims, start=1):
        assert " ".join(map(str, [task, *counts, sum(counts)])) in " ".join(words)
    assert "learn" in words
    with Image.open(tmp_path / "capacity.png") as image:
        image.load()
        assert min(image.size) > 300


def test_a_class_without_a_date_has_an_unknown_one(tmp_path: Path) -> None:
    model = taught_model(tmp_path, "linear")
    save_model(tmp_path / "old", model.parts.method, model.parts.backbone, model.parts.transforms)
    assert "unknown date" in invoke("inspect", tmp_path / "old").output
    assert "claims no coordinates" in invoke("inspect", tmp_path / "old").output


def test_evaluate_counts_and_draws(model: Path, pictures: Path, tmp_path: Path) -> None:
    output = invoke("evaluate", model, pictures, "--plot", tmp_path / "confusion.png").output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if line}
    evaluation = load(model, device="cpu").evaluate(pictures)
    assert rows["cat"][1:3] == ["4", str(evaluation.correct[0])]
    assert "% of 8 pictures of known classes are named rightly" in output
    assert f"probabilities of the answers: {100 * (evaluation.certainty or 0):.1f} % on average" in output
    assert "'yak' is not known" in output
    assert "bus" not in rows
    with Image.open(tmp_path / "confusion.png") as image:
        image.load()
        assert min(image.size) > 300


def test_one_class_that_is_left_is_one(model: Path) -> None:
    *others, _ = [each["name"] for each in read_manifest(model).state["classes"]]
    said = [invoke("remove", model, name).output for name in others]
    assert "1 class is left;" in said[-1]


def test_names_change_go_and_come_back(model: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "a model"
    spaced.symlink_to(model)
    before = state_bytes(read_manifest(model).state)
    assert f"clare undo '{spaced}' takes it back" in invoke("rename", spaced, "cat", "Katze [1] $").output
    assert "Katze [1] $" in invoke("inspect", model).output
    assert "3 classes are left;" in invoke("remove", model, "dog").output
    assert "took back change 5 (remove: dog); 4 classes" in invoke("undo", model).output
    assert "took back change 4 (rename: cat, Katze [1] $)" in invoke("undo", model).output
    assert state_bytes(read_manifest(model).state) == before
    tensors = {name for name in content(model) if name.startswith("tensors-")}
    assert read_manifest(model).state["tensors"] in tensors


def test_what_a_listing_takes_grows_with_the_number_of_classes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(**values: Any) -> ClassInfo:
        made.append(values["name"])
        return ClassInfo(**values)

    monkeypatch.setattr("clare.classifier.facts.ClassInfo", counted)
    found = []
    for number in (2, 8):
        model, pictures = tmp_path / f"model {number}", tmp_path / f"pictures {number}"
        write_pictures(pictures, *(f"class {place}" for place in range(number)), number=3)
        for words in (("learn", model, pictures, "--method", "simplecil"), ("inspect", model)):
            made.clear()
            invoke(*words)
            found.append(len(made) / number)
    assert found[:2] == found[2:]


def test_of_very_many_classes_the_report_lists_the_new_ones_and_says_how_many_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clare.cli.learn.MOST_LISTED", 2)
    monkeypatch.setattr("clare.cli.model.MOST_DRAWN", 2)
    words = ["--method", "simplecil"]
    write_pictures(tmp_path / "first", "cat", "dog")
    write_pictures(tmp_path / "second", "bus")
    for lesson in ("first", "second"):
        given = ["learn", str(tmp_path / "model"), str(tmp_path / lesson), *(words if lesson == "first" else [])]
        output = CliRunner().invoke(app, given, env={"COLUMNS": "240"}, catch_exceptions=False).output
    rows = [line.split()[0] for line in output.splitlines() if line.startswith(("bus ", "cat ", "dog "))]
    assert rows == ["cat", "bus"]
    assert "and 1 more classes; clare inspect" in output
    given = ["evaluate", str(tmp_path / "model"), str(tmp_path / "first"), "--plot", str(tmp_path / "plot.png")]
    write_pictures(tmp_path / "first", "bus", number=2)
    output = CliRunner().invoke(app, given, env={"COLUMNS": "240"}, catch_exceptions=False).output
    assert "confusion matrix of the 2 classes with the most mistakes" in output
