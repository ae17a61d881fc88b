"""`clare learn`: what it says before and after, and what careless inputs get to hear."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from own_worlds import write_pictures
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from clare.backbones.vit import BackboneSettings, load_backbone
from clare.classifier.classifier import load
from clare.cli.learn import Bar
from clare.cli.main import app, main
from clare.files import write_tensors
from clare.model.lock import writing

FAST = ("epochs=2", "probe_epochs=1", "learning_rate=0.1", "adapter.bottleneck=4", "head.align_epochs=2")


def invoke(*arguments: str | Path, code: int = 0) -> str:
    """Run a command on a wide terminal and return what it prints."""
    words = [str(word) for word in arguments]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "240"}, catch_exceptions=False)
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


def make(model: Path, pictures: Path, *more: str | Path) -> str:
    """Teach a new model of the method clare that trains for a moment only."""
    settings = ["--method", "clare"] + [word for value in FAST for word in ("--set", value)]
    return invoke("learn", model, pictures, *settings, *more)


def test_a_long_lesson_says_where_it_is_where_there_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clare.runner.progress.SECONDS_BETWEEN_LINES", 0.001)
    output = make(tmp_path / "model", write_pictures(tmp_path / "january", "cat", "dog"))
    assert re.search(r"^[a-z ]+, after \d", output, re.MULTILINE)


def test_a_line_says_which_step_is_under_way_and_how_much_of_it_is_done() -> None:
    pipe = StringIO()
    bar = Bar(Console(file=pipe))
    bar.say()
    bar.step("train", 2)
    bar.epoch(1, 4)
    bar.batch()
    bar.say()
    assert re.fullmatch(r"reading, after .* s\ntrain, after .* s, 62 % done\n", pipe.getvalue())


def test_two_lessons_are_announced_measured_and_recorded(tmp_path: Path) -> None:
    model = tmp_path / "мой model"
    output = make(model, write_pictures(tmp_path / "january", "cat", "dog"))
    assert "the new model uses quickdraw-vit, the small backbone for drawings" in output
    assert f"{model}: 2 classes, 20 pictures, of which 4 are held back" in output
    assert "this will take about" in output
    assert "capacity: 100.0 % of the coordinates are free, enough for about 45 more tasks" in output
    assert "of 4 held-back pictures are named rightly" in output
    assert "capacity: 95.0 % of the coordinates are free, enough for about 44 more tasks" in output
    typed = f"'{model}'"
    assert f"next: clare predict {typed} IMAGE…   clare learn {typed} MORE   clare undo {typed}" in output
    write_pictures(tmp_path / "february", "bus", "van")
    output = invoke("learn", model, tmp_path / "february", "--check", tmp_path / "january")
    assert "check (%)" in output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if line and line[0].islower()}
    day = load(model, device="cpu").history[1].at[:10]
    assert rows["cat"][1:3] == ["1", "8"]
    assert rows["cat"][3:7] == ["about", "100.0", "2", day]
    assert rows["cat"][-1] == "10"
    assert rows["bus"][1:3] == ["2", "8"]
    assert rows["bus"][-2:] == ["-", "-"]
    assert len(load(model, device="cpu").history) == 3


def test_quick_and_update_claim_nothing(tmp_path: Path) -> None:
    model = tmp_path / "model"
    make(model, write_pictures(tmp_path / "january", "cat", "dog"), "--quick", "--keep", "7", "--seed", "0")
    output = invoke("learn", model, write_pictures(tmp_path / "more", "cat", seed=2), "--update")
    assert "capacity: 100.0 % of the coordinates are free" in output
    opened = load(model, device="cpu")
    assert [change.kind for change in opened.history] == ["create", "quick", "update"]
    assert [info.num_images for info in opened.classes] == [16, 8]
    manifest = json.loads((model / "model.json").read_text())
    assert (manifest["num_kept"], manifest["seed"]) == (7, 0)


def test_few_bright_large_and_broken_pictures_are_mentioned(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures", "cat", number=3)
    (folder / "wall").mkdir()
    for place in range(6):
        Image.fromarray(np.full((200, 260, 3), 240, np.uint8)).save(folder / "wall" / f"{place}.jpg")
    (folder / "wall" / "broken.jpg").write_text("no image")
    output = make(tmp_path / "model", folder, "--quick", "--skip-bad-images")
    assert "broken.jpg' cannot be read as an image and was left out" in output
    assert "nothing is held back of cat" in output
    assert "look like photos" in output
    assert "clare doctor suggests some for this machine" in output
    assert "5 of 8 drawings have a bright ground and are inverted" in output
    assert "'none of these' is off until" in output


def test_a_model_on_a_weights_file(tmp_path: Path, fails: Callable[..., str]) -> None:
    settings = BackboneSettings(name="vit_tiny_patch16_224", weights="random", image_size=32, architecture={"depth": 1})
    write_tensors(tmp_path / "photo.safetensors", load_backbone(settings).vit.state_dict())
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog", number=5)
    output = invoke("learn", tmp_path / "model", pictures, "--quick", "--backbone", tmp_path / "photo.safetensors")
    assert "drawings" not in output
    model = load(tmp_path / "model", device="cpu")
    assert (model.channels, model.image_size, model.is_drawing_model) == (3, 32, False)
    sentence = fails("learn", tmp_path / "model", pictures, "--backbone", "vit_tiny_patch16_224")
    assert "knows classes already, and --backbone counts only for a new model" in sentence


def test_a_new_model_is_what_its_pictures_and_the_time_ask_for(tmp_path: Path, fails: Callable[..., str]) -> None:
    settings = BackboneSettings(name="vit_tiny_patch16_224", weights="random", image_size=16, architecture={"depth": 1})
    write_tensors(tmp_path / "photo.safetensors", load_backbone(settings).vit.state_dict())
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog", number=5)

    def views(*words: str) -> int:
        """Teach a new model, which says what was chosen, and return how many views of a picture it reads."""
        model = tmp_path / f"model {words}"
        output = invoke("learn", model, pictures, "--backbone", tmp_path / "photo.safetensors", *words)
        assert output.count("chosen: frozen features of") == 1
        assert "; " in next(line for line in output.splitlines() if line.startswith("chosen"))
        return int(json.loads((model / "model.json").read_text())["method"]["features"]["views"])

    assert [views(), views("--best"), views("--minutes", "60")] == [3, 3, 3]
    assert [views("--quick"), views("--minutes", "0.0000001")] == [1, 1]
    for given in (("--quick", "--best"), ("--best", "--minutes", "5")):
        assert "each say how long a lesson may take" in fails("learn", tmp_path / "other", pictures, *given)
    sentence = fails("learn", tmp_path / "other", pictures, "--best", "--method", "clare")
    assert "--best chooses method and settings itself" in sentence
    write_pictures(tmp_path / "more", "cow")
    assert "--best counts only for a new model" in fails("learn", tmp_path / "model ()", tmp_path / "more", "--best")
    assert "give a number above 0" in fails("learn", tmp_path / "other", pictures, "--minutes", "0")
    assert not (tmp_path / "other").exists()


def test_a_lesson_that_would_take_too_long_goes_by_statistics(tmp_path: Path) -> None:
    model = tmp_path / "model"
    make(model, write_pictures(tmp_path / "january", "cat", "dog"), "--quick")
    output = invoke("learn", model, write_pictures(tmp_path / "february", "bus"), "--minutes", "0.0000001")
    assert "so this lesson goes by statistics, as --quick" in output
    assert "there is no way within 1e-07 minutes; the quickest is taken" in output
    assert [change.kind for change in load(model, device="cpu").history] == ["create", "quick", "quick"]


def test_careless_inputs_get_one_sentence(tmp_path: Path, fails: Callable[..., str]) -> None:
    model, pictures = tmp_path / "model", write_pictures(tmp_path / "january", "cat", "dog")
    (tmp_path / "empty").mkdir()
    hollow = write_pictures(tmp_path / "hollow", "full")
    (hollow / "nothing").mkdir()
    assert "there is no folder" in fails("learn", model, tmp_path / "nowhere")
    assert "has no class folders" in fails("learn", model, tmp_path / "empty")
    assert "nothing' has no images" in fails("learn", model, hollow)
    assert "there is no folder" in fails("learn", model, pictures, "--check", tmp_path / "nowhere")
    assert "leave out --update" in fails("learn", model, pictures, "--update")
    assert "give one of them" in fails("learn", model, pictures, "--update", "--quick")
    assert "is there and is no model folder" in fails("learn", tmp_path / "january", pictures)
    assert "there is no method 'klare' (did you mean 'clare'?)" in fails("learn", model, pictures, "--method", "klare")
    assert "there is no weights file no.safetensors" in fails("learn", model, pictures, "--backbone", "no.safetensors")
    assert "the setting 'sparsity' got 2" in fails("learn", model, pictures, "--method", "clare", "--set", "sparsity=2")
    assert not model.exists()
    make(model, pictures, "--quick")
    before = (model / "model.json").read_bytes()
    assert "s 'cat', 'dog' are known already; give more pictures with --update" in fails("learn", model, pictures)
    sentence = fails("learn", model, write_pictures(tmp_path / "new", "cow"), "--update")
    assert "knows no class 'cow'" in sentence
    assert (model / "model.json").read_bytes() == before


def test_a_damaged_or_newer_model_is_named(tmp_path: Path, fails: Callable[..., str]) -> None:
    model, pictures = tmp_path / "model", write_pictures(tmp_path / "january", "cat", "dog")
    make(model, pictures, "--quick")
    manifest = (model / "model.json").read_text()
    (model / "model.json").write_text(manifest.replace('"format": 3', '"format": 4'))
    for command in (("learn", model, pictures), ("predict", model, pictures), ("inspect", model), ("undo", model)):
        assert "has format 4, this version reads 1 to 3; install a newer clare" in fails(*command)
    (model / "model.json").write_text(manifest)
    tensors = model / json.loads(manifest)["tensors"]
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"x")
    assert "is damaged: its content does not fit its name" in fails("inspect", model)
    tensors.unlink()
    assert "cannot be read" in fails("inspect", model)


KILLED = """
import os, signal, sys
from clare.cli.main import main

sync, count, number = os.fsync, iter(range(1, 100)), int(sys.argv.pop())
def counted(descriptor):
    if next(count) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = counted
main()
"""


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_creation_that_was_killed_is_made_again_by_the_same_command(
    tmp_path: Path, start_python: Callable[..., "subprocess.Popen[str]"], number: int
) -> None:
    # The syncs of making a model: of the tensors, of their folder, of model.json.
    model, pictures = tmp_path / "model", write_pictures(tmp_path / "january", "cat", "dog")
    process = start_python("-c", KILLED, "learn", model, pictures, "--quick", str(number))
    _, messages = process.communicate()
    assert process.returncode == -signal.SIGKILL, messages
    left = sorted(path.name for path in model.iterdir())
    assert ".lock" in left
    assert "model.json" not in left
    assert any(name.endswith(".tmp") for name in left) == (number != 2)
    make(model, pictures, "--quick")
    assert [info.name for info in load(model, device="cpu").classes] == ["cat", "dog"]
    assert not any(path.name.startswith(".") for path in model.iterdir())


def test_a_busy_model_is_refused_without_waiting(tmp_path: Path, fails: Callable[..., str]) -> None:
    model, pictures = tmp_path / "model", write_pictures(tmp_path / "january", "cat", "dog")
    make(model, pictures, "--quick")
    new = write_pictures(tmp_path / "february", "bus")
    with writing(model, wait=False):
        for command in (
            ("learn", model, new, "--quick"),
            ("undo", model),
            ("rename", model, "cat", "x"),
            ("remove", model, "cat"),
        ):
            assert f") is teaching {model}; try again when it is done" in fails(*command, "--no-wait")
        assert "cat" in invoke("inspect", model)
    invoke("undo", model, "--no-wait")
