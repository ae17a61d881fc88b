"""`clare merge`, `clare check`, and pictures from other places than folders on the command line."""

import csv
import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
from huggingface_hub import constants
from own_worlds import drawings, write_pictures
from PIL import Image
from typer.testing import CliRunner

from clare.classifier.classifier import load
from clare.cli.main import app, main


def invoke(*arguments: str | Path, code: int = 0, typed: bytes | None = None) -> str:
    """Run a command on a wide terminal and return what it prints."""
    words = [str(word) for word in arguments]
    result = CliRunner().invoke(app, words, input=typed, env={"COLUMNS": "240"}, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return fails(*arguments): run the command line and return its one error sentence."""

    def run(*arguments: str | Path) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["clare", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        printed = capsys.readouterr()
        assert leaving.value.code == 2
        (sentence,) = [line for line in printed.err.splitlines() if line]
        return sentence.removeprefix("error: ")

    return run


def taught(folder: Path, *classes: str, seed: int = 0, **more: str) -> Path:
    """Teach a model of the drawing backbone."""
    pictures = write_pictures(folder / f"pictures-{'-'.join(classes)}-{seed}", *classes, seed=seed)
    words = [word for key, value in more.items() for word in (f"--{key}", value)]
    model = folder / f"model-{'-'.join(classes)}-{seed}"
    invoke("learn", model, pictures, *words)
    return model


def test_two_models_become_one(tmp_path: Path, fails: Callable[..., str]) -> None:
    one, other = taught(tmp_path, "cat", "dog"), taught(tmp_path, "dog", "bus", seed=1)
    before = (one / "model.json").read_bytes()
    output = invoke("merge", one, other, "--out", tmp_path / "both")
    assert f"{tmp_path / 'both'}: 3 classes from 2 models, with means and scatter exact" in output
    assert "known to several: 1; of these each model kept some directions alone" in output
    assert f"next: clare predict {tmp_path / 'both'}" in output
    assert load(tmp_path / "both", device="cpu").classes_.tolist() == ["cat", "dog", "bus"]
    assert (one / "model.json").read_bytes() == before
    assert "merge" in invoke("inspect", tmp_path / "both")
    assert "holds a model already" in fails("merge", one, other, "--out", tmp_path / "both")
    pictures = write_pictures(tmp_path / "pictures", "cat")
    assert "is there and is no model folder" in fails("merge", one, other, "--out", pictures)
    assert "merging takes two or more" in fails("merge", one, "--out", tmp_path / "new")
    assert "there is no folder" in fails("merge", one, tmp_path / "none", "--out", tmp_path / "new")
    assert f"{one} and {one} have learnt 'cat', 'dog' from the same pictures" in fails(
        "merge", one, one, "--out", "new"
    )
    adapted = taught(tmp_path, "van", "tram", method="clare")
    assert "different methods or settings" in fails("merge", one, adapted, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_pictures_are_looked_at_and_taught_without_suspects(tmp_path: Path, fails: Callable[..., str]) -> None:
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog", number=12)
    (pictures / "cat" / "broken <b>.png").write_text("x")
    (pictures / "dog" / "copy.png").write_bytes((pictures / "cat" / "01.png").read_bytes())
    output = invoke("check", pictures, "--out", tmp_path / "found")
    assert f"{pictures}: 26 pictures seen with quickdraw-vit: 1 unreadable, 1 copy" in output
    assert "--skip-suspects leaves out the 2 that are surest" in output
    rows = list(csv.DictReader(io.StringIO((tmp_path / "found" / "suspects.csv").read_text())))
    assert {(row["kind"], row["label"]) for row in rows} >= {("unreadable", "cat"), ("copy", "dog")}
    page = (tmp_path / "found" / "suspects.html").read_text()
    assert "data:image/png;base64," in page
    assert "broken &lt;b&gt;.png" in page
    assert "<b>.png" not in page
    output = invoke("learn", tmp_path / "model", pictures, "--skip-suspects")
    assert "left out as suspicious: 1 unreadable, 1 copy" in output
    assert "2 classes, 24 pictures" in output
    assert invoke("check", pictures, "--model", tmp_path / "model", "--out", tmp_path / "again")
    assert "leave out --backbone" in fails("check", pictures, "--model", tmp_path / "model", "--backbone", "x")
    assert "there is no folder or file" in fails("check", tmp_path / "none")
    (tmp_path / "broken" / "cat").mkdir(parents=True)
    (tmp_path / "broken" / "cat" / "a.jpg").write_text("x")
    sentence = fails("learn", tmp_path / "new", tmp_path / "broken", "--skip-suspects")
    assert "is suspicious, so none is left to learn from" in sentence
    assert "there is no folder" in fails("check", pictures, "--model", tmp_path / "none")
    assert "has no column 'kind'" in fails("check", f"{write_table(tmp_path, pictures)}@kind")
    (tmp_path / "file").write_text("")
    assert "file" in fails("check", pictures, "--out", tmp_path / "file")


def write_table(folder: Path, pictures: Path) -> Path:
    """Write where the pictures of a folder are, and what they show."""
    with (folder / "table.csv").open("w", newline="") as file:
        lines = [[path, path.parent.name] for path in sorted(pictures.glob("*/[0-9]*.png"))]
        csv.writer(file).writerows([["path", "label"], *lines])
    return folder / "table.csv"


def test_a_table_a_zip_and_standard_input(tmp_path: Path, fails: Callable[..., str]) -> None:
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog")
    table = write_table(tmp_path, pictures)
    assert "2 classes, 20 pictures, of which 4 are held back" in invoke("learn", tmp_path / "model", table)
    packed = tmp_path / "pictures.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(pictures.glob("*/*.png")):
            archive.write(path, path.relative_to(pictures))
    lines = invoke("predict", tmp_path / "model", packed, "--json").splitlines()
    assert [json.loads(line)["image"] for line in lines][:1] == [f"{packed}/cat/00.png"]
    assert len(lines) == 20
    file = io.BytesIO()
    Image.fromarray(drawings("cat", seed=4)["cat"][0]).save(file, "PNG")
    assert invoke("predict", tmp_path / "model", "-", typed=file.getvalue()).startswith("standard input: cat")
    assert "'standard input' cannot be read" in invoke("predict", tmp_path / "model", "-", typed=b"", code=1)
    assert "of 20 pictures of known classes" in invoke(
        "evaluate", tmp_path / "model", packed, "--plot", tmp_path / "c.png"
    )
    assert "'cat', 'dog' are known already" in fails("learn", tmp_path / "model", packed)


def test_validation_is_held_back_and_test_is_measured(tmp_path: Path) -> None:
    for part, number in (("train", 5), ("val", 2), ("test", 3)):
        write_pictures(tmp_path / "split" / part, "cat", "dog", number=number, seed=number)
    output = invoke("learn", tmp_path / "model", tmp_path / "split")
    assert "2 classes, 10 pictures to learn from, val/ is held back" in output
    assert "check (%)" in output
    assert "of 4 held-back pictures are named rightly" in output


def test_a_folder_too_high_says_which_command_was_meant(tmp_path: Path, fails: Callable[..., str]) -> None:
    write_pictures(tmp_path / "year" / "january", "cat", "dog")
    sentence = fails("learn", tmp_path / "model", tmp_path / "year")
    assert "has no images but folders (cat, dog); if these are the classes, give that folder: clare learn" in sentence
    assert sentence.endswith(f"{tmp_path / 'year' / 'january'}")
    assert not (tmp_path / "model").exists()


def test_without_the_hub_a_backbone_is_one_sentence(
    tmp_path: Path, fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")

    create_model = timm.create_model

    def again_and_again(*given: Any, **settings: Any) -> Any:
        assert not settings.get("pretrained"), "the Hub's client would try for a minute"
        return create_model(*given, **settings)

    # Where timm asks for weights; the model is built without them before, to see whether it is one that works.
    monkeypatch.setattr("timm.models._builder.load_pretrained", again_and_again)
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog")
    name = "vit_base_patch16_224.augreg_in21k"
    for words in (
        ("learn", tmp_path / "model", pictures, "--backbone", name),
        ("compare", f"quickdraw-20x10+{name}", "--methods", "linear,clare", "--out", tmp_path / "runs"),
    ):
        sentence = fails(*words)
        assert f"the weights of '{name}' could not be fetched" in sentence
        assert "--backbone FILE" in sentence
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "runs").exists()


def test_an_unknown_picture_is_not_named_beside_the_verdict(tmp_path: Path) -> None:
    model = taught(tmp_path, "cat", "dog")
    pictures = write_pictures(tmp_path / "new", "sun", number=1)
    line = invoke("predict", model, pictures, "--threshold", "0").strip()
    assert line.startswith(f"{pictures / 'sun' / '00.png'}: none of these? (unknown ")
    assert "; if it is one of them: " in line


def test_sets_and_shares_are_asked_for_by_name(tmp_path: Path, fails: Callable[..., str]) -> None:
    model = tmp_path / "model"
    invoke("learn", model, write_pictures(tmp_path / "old", "cat", "dog", number=50), "--quick")
    pictures = write_pictures(tmp_path / "new", "cat", number=3)
    found = [
        json.loads(line) for line in invoke("predict", model, pictures, "--coverage", "0.9", "--json").splitlines()
    ]
    assert all(line["one_of"][0] == line["guesses"][0]["name"] for line in found)
    assert "; one of: " in invoke("predict", model, pictures, "--coverage", "0.9")
    invoke("predict", model, pictures, "--coverage", "0.9", "--csv", tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["one_of"].split("; ") for row in rows] == [line["one_of"] for line in found]
    assert [row["name_1"] for row in rows] == [line["guesses"][0]["name"] for line in found]
    assert "one_of" not in invoke("predict", model, pictures, "--unknown-rate", "0.1", "--json")
    for option, sentence in (
        (("--coverage", "0.99"), "need 99 held-back pictures, and the model keeps 20"),
        (("--unknown-rate", "0.01"), "takes 99 held-back pictures"),
        (("--coverage", "2"), "the coverage is 2; give a share between 0 and 1"),
        (("--unknown-rate", "0.1", "--threshold", "0.5"), "give one of them"),
    ):
        assert sentence in fails("predict", model, pictures, *option)
