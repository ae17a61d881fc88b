"""Whatever the user gets wrong is one sentence on the error stream, and exit code 2."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from run_outcome import Stop, StopAtTask

from clare.cli.main import main
from clare.engine.run import run_experiment
from clare.files import write_tensors
from clare.presets.load import make_experiment

Fails = Callable[..., str]
FOLDER_STREAM = ("--set", "data.dataset=folder", "--set", "stream.num_classes=2", "--set", "stream.increment=1")


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Fails:
    """Return fails(*arguments): run the command line in a folder of its own and return its one error sentence."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: str | Path) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["clare", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        printed = capsys.readouterr()
        assert leaving.value.code == 2
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1
        assert printed.err.startswith("error: ")
        return printed.err.removeprefix("error: ").strip()

    return run


@pytest.fixture
def image_tree(tmp_path: Path) -> Path:
    """Return a folder of images: two classes with three images each to train on, and as many to test on."""
    random = np.random.RandomState(0)
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for index in range(3):
                pixels = random.randint(0, 256, (30, 32, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{index}.png")
    return tmp_path / "images"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train quikdraw", "there is no preset 'quikdraw' (did you mean 'quickdraw'?); known: "),
        ("train quickdraw --method clair", "there is no method 'clair' (did you mean 'clare'?); known: "),
        ("train quickdraw --set method.sparsty=1", "there is no setting 'method.sparsty' (did you mean 'sparsity'?)"),
        ("train quickdraw --set method.sparsity=2", "the setting 'method.sparsity' got 2; input should be less than 1"),
        ("train quickdraw --set sparsity", "--set got 'sparsity'; write it as key=value"),
        ("train quickdraw --seed -3", "the setting 'seed' got -3; "),
        ("train quickdraw --set stream.num_classes=1000", "the stream asks for 1000 classes and 'quickdraw' has 200; "),
        (
            "train quickdraw --set transforms.image_size=20",
            "`transforms.image_size` is 20, but the backbone takes 28; ",
        ),
        ("compare quickdraw --methods clare,clair", "there is no method 'clair' (did you mean 'clare'?)"),
        ("compare quickdraw --methods ,", "--methods is empty; name at least one method"),
        ("compare quickdraw --methods clare --seeds 1,x", "--seeds got 'x', which is no whole number; write them as"),
        ("compare quickdraw --methods clare --seeds 1,1", "--seeds names 1 twice; a seed counts once"),
        ("compare quickdraw --methods clare --seeds ,", "--seeds got ',', which holds no seed"),
        ("compare quickdraw --methods clare --seeds=-3", "the setting 'seed' got -3; "),
        ("tune quickdraw --methods clare --set stream.evaluate_on=test", "would tune on test images; leave it out"),
        ("train quickdraw --method nowhere.py:Mine", "there is no file nowhere.py, which holds the method"),
        ("check-method clair", "there is no method 'clair' (did you mean 'clare'?)"),
        ("presets quikdraw", "there is no preset 'quikdraw'"),
        ("methods clair", "there is no method 'clair'"),
        ("show nowhere", "nowhere"),
        ("report nowhere --out pictures", "nowhere"),
        ("pretrain --out weights.pt", "--out got 'weights.pt'; give a file name that ends in .safetensors"),
        ("pretrain --out weights.safetensors --set epoks=1", "there is no setting 'epoks' (did you mean 'epochs'?)"),
    ],
)
def test_wrong_words_are_named(fails: Fails, arguments: str, sentence: str) -> None:
    assert sentence in fails(*arguments.split())


@pytest.mark.parametrize(
    "command",
    [
        "train tiny --method clare --set method.two_stage=false --set method.penalty=l2",
        "train tiny --method linear --set method.epochs=3",
        "train tiny --method linear --set transforms.shear=3 --set transforms.train=crop",
        "compare tiny --methods clare,linear --set method.constant_share=0.1",
        "sweep tiny --method ranpac --set method.tuner=none --set method.epochs=1,2",
        "presets tiny --method clare --set method.mask=none --set method.sparsity=0.5",
    ],
)
def test_a_setting_that_does_nothing_is_refused(fails: Fails, tiny_preset: Path, command: str) -> None:
    said = fails(*(str(tiny_preset) if word == "tiny" else word for word in command.split()))
    assert "does nothing here: it acts where " in said
    assert said.endswith("; leave it out, or set that too")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named(fails: Fails) -> None:
    assert "`engine.device` is cuda, but PyTorch sees no GPU" in fails(
        "train", "quickdraw", "--set", "engine.device=cuda"
    )


def test_images_that_cannot_be_used_are_named(fails: Fails, tiny_preset: Path, image_tree: Path) -> None:
    def data(root: Path) -> str:
        return fails("train", tiny_preset, "--method", "simplecil", *FOLDER_STREAM, "--set", f"data.root={root}")

    assert f"there is no folder '{image_tree}-not/train'; expected" in data(Path(f"{image_tree}-not"))
    broken = image_tree / "train" / "cat" / "1.png"
    broken.write_bytes(broken.read_bytes()[:200])
    assert f"'{broken}' cannot be read as an image" in data(image_tree)
    assert "or pass --skip-bad-images" in data(image_tree)
    broken.unlink()
    for path in (image_tree / "test" / "dog").iterdir():
        path.unlink()
    assert f"the class folder '{image_tree}/test/dog' has no images" in data(image_tree)
    (image_tree / "test" / "dog").rmdir()
    assert "only train has 'dog'" in data(image_tree)
    shutil.rmtree(image_tree / "train")
    (image_tree / "train").mkdir()
    assert f"there is no class folder in '{image_tree}/train'" in data(image_tree)


def test_bad_images_can_be_left_out(
    tiny_preset: Path,
    image_tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path in (image_tree / "train" / "cat" / "1.png", image_tree / "test" / "dog" / "0.png"):
        path.write_bytes(path.read_bytes()[:200])
    options = [*FOLDER_STREAM, "--set", f"data.root={image_tree}", "--skip-bad-images", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["clare", "train", str(tiny_preset), "--method", "simplecil", *options])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert not leaving.value.code
    assert "2 unreadable images were left out" in capsys.readouterr().out
    predictions = [path.stat().st_size for path in (tmp_path / "run" / "predictions").iterdir()]
    assert len(predictions) == 2


def test_backbones_that_cannot_be_used_are_named(fails: Fails, tiny_preset: Path, tmp_path: Path) -> None:
    def backbone(*settings: str, preset: str | Path = tiny_preset) -> str:
        options = [word for setting in settings for word in ("--set", f"backbone.{setting}")]
        return fails("train", preset, "--method", "simplecil", *options)

    refusal = backbone("name=resnet18", "weights=random", preset="quickdraw")
    assert "the backbone is a ResNet, not a model that adapters can join" in refusal
    assert "the nearest that works is convnext_tiny" in refusal
    assert "timm knows no model 'vit_bass_patch16_224' (did you mean 'vit_base_patch16_224'?)" in (
        backbone("name=vit_bass_patch16_224", "weights=random")
    )
    assert f"there is no weights file {tmp_path / 'none.safetensors'}" in backbone(
        f"weights={tmp_path / 'none.safetensors'}"
    )
    text = tmp_path / "text.safetensors"
    text.write_text("not tensors")
    assert f"{text} is not a readable safetensors file" in backbone(f"weights={text}")
    other = tmp_path / "other.safetensors"
    write_tensors(other, {"pos_embed": torch.zeros(1, 2, 3), "extra": torch.zeros(1)})
    sentence = backbone(f"weights={other}")
    assert f"{other} does not fit the backbone: " in sentence
    assert "1 unknown (extra); 1 of another shape (pos_embed); check `backbone.name`" in sentence


def test_folders_that_cannot_be_used_are_named(fails: Fails, tiny_preset: Path, tmp_path: Path) -> None:
    command = ("train", tiny_preset, "--method", "simplecil", "--out")
    (tmp_path / "file").write_text("")
    assert f"{tmp_path / 'file'} is a file and cannot hold a run" in fails(*command, tmp_path / "file")
    assert f"could not write {tmp_path / 'file' / 'run'}" in fails(*command, tmp_path / "file" / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("")
    assert f"{tmp_path / 'full'} is not empty and holds no run" in fails(*command, tmp_path / "full")
    with pytest.raises(Stop):
        run_experiment(make_experiment(str(tiny_preset), "linear"), tmp_path / "run", StopAtTask(0))
    assert f"{tmp_path / 'run'} holds a run of another preset: " in fails(*command, tmp_path / "run")
    assert f"{tmp_path / 'full'}" in fails("show", tmp_path / "full")


def test_a_real_process_says_it_too(start_python: Callable[..., "subprocess.Popen[str]"], tmp_path: Path) -> None:
    process = start_python("-m", "clare", "train", "quickdraw", "--set", "method.[x]=1", cwd=tmp_path, fresh=True)
    output, messages = process.communicate()
    assert (process.returncode, output) == (2, "")
    assert messages.startswith("error: there is no setting 'method.[x]'")
    assert messages.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
