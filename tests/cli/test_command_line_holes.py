"""What an attack on the command line found: each ends in one sentence, exit code 2, and leaves nothing behind."""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from own_worlds import drawings, write_pictures
from typer.testing import CliRunner

from clare.classifier.classifier import Classifier, load
from clare.cli.main import app, main
from clare.errors import ModelError, RunError, SettingsError
from clare.export import export as export_module
from clare.export.export import export_model
from clare.files import check_writable

Fails = Callable[..., str]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fails:
    """Return fails(*arguments): run the command line and return its one error sentence."""

    def run(*arguments: str | Path) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["clare", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        assert leaving.value.code == 2
        lines = capsys.readouterr().err.splitlines()
        (sentence,) = [line for line in lines if line.startswith("error: ")]
        return sentence.removeprefix("error: ")

    return run


@pytest.mark.parametrize("command", ["learn", "predict", "evaluate", "serve"])
def test_a_device_that_there_is_none_of_is_refused(tmp_path: Path, command: str) -> None:
    words = [command, str(tmp_path / "model"), *([] if command == "serve" else [str(tmp_path)]), "--device", "tpu"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "'tpu' is not one of" in result.output
    assert list(tmp_path.iterdir()) == []


def test_device_and_seed_are_checked_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the setting 'device' got 'tpu'; input should be 'auto', 'cpu' or 'cuda'"):
        Classifier(tmp_path / "model", device="tpu").learn(drawings("cat"))
    for seed in (-1, 2**32):
        with pytest.raises(SettingsError, match=rf"the seed is {seed}; choose one from 0 to 4294967295"):
            Classifier(tmp_path / "model", seed=seed, device="cpu").learn(drawings("cat"))
        result = CliRunner().invoke(app, ["learn", str(tmp_path / "model"), str(tmp_path), "--seed", str(seed)])
        assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_class_folder_that_is_not_utf8_is_named(fails: Fails, tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures", "cat", "dog")
    os.rename(os.fsencode(tmp_path / "pictures" / "cat"), os.fsencode(tmp_path / "pictures") + b"/caf\xe9")
    assert r"the folder 'caf\udce9' in" in fails("learn", tmp_path / "model", tmp_path / "pictures")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a=", "1}")], ids=["arrays", "tables"])
@pytest.mark.parametrize("depth", [40, 3000])
def test_toml_that_is_nested_deeply_is_refused(
    fails: Fails, tmp_path: Path, opening: str, closing: str, depth: int
) -> None:
    nested = opening * depth + closing[:-1] + closing[-1] * depth
    (tmp_path / "deep.toml").write_text(f"a = {nested}\n")
    told = "it is nested more than 32 deep; correct it"
    assert fails("train", tmp_path / "deep.toml") == f"deep.toml is not valid TOML: {told}"
    assert told in fails("train", "quickdraw", "--set", f"method.sparsity={nested}")


def test_a_refused_first_lesson_leaves_nothing(fails: Fails, tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog")
    (pictures / "dog" / "00.png").write_text("none")
    assert "cannot be read as an image" in fails("learn", tmp_path / "new" / "model", pictures)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ModelError, match="no rows of a trained linear head"):
        Classifier(tmp_path / "own", method="l2p", device="cpu").learn(drawings("cat"), mode="quick")
    assert not (tmp_path / "own").exists()
    # An empty model that was made on purpose stays.
    Classifier(device="cpu").save(tmp_path / "made")
    assert "cannot be read as an image" in fails("learn", tmp_path / "made", pictures)
    assert load(tmp_path / "made", device="cpu").classes == []


def test_an_export_tries_its_folder_before_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Classifier(method="simplecil", device="cpu").save(tmp_path / "model")
    monkeypatch.setattr(export_module, "open_source", lambda *values: pytest.fail("the work has begun"))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"could not write .*file/out: Not a directory; choose another folder"):
        export_model(tmp_path / "model", "timm", tmp_path / "file" / "out")
    (tmp_path / "out" / "README.md").mkdir(parents=True)
    with pytest.raises(ModelError, match=r"README\.md is a folder, and a file of that name would be written"):
        export_model(tmp_path / "model", "timm", tmp_path / "out")


def test_trying_a_folder_leaves_nothing_in_it(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_what_the_system_refuses_is_one_sentence(
    fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*values: object, **named: object) -> None:
        raise OSError(code, os.strerror(code), "somewhere")

    monkeypatch.setattr("clare.classifier.sources.find_source", refuse)
    sentence = fails("learn", tmp_path / "model", tmp_path)
    assert sentence == f"somewhere: {os.strerror(code)}; make room or make it accessible, and run again"


def test_names_of_files_do_not_steer_the_terminal(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog")
    Classifier(tmp_path / "model", method="simplecil", device="cpu").learn(pictures)
    odd = shutil.copy(pictures / "cat" / "00.png", tmp_path / "\x1b]0;title\x07\x9b2J\u202e.png")
    for more in ([], ["--json"]):
        words = ["predict", str(tmp_path / "model"), str(odd), *more]
        output = CliRunner().invoke(app, words, env={"COLUMNS": "300"}, catch_exceptions=False).output
        assert "title" in output
        assert not set(output) & set("\x1b\x07\x9b\u202e")
