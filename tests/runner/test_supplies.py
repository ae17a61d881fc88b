"""`clare data` says what is here and what is missing, and fetches it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from data_worlds import md5_of, pack_tar, write_cifar, write_tree
from huggingface_hub import constants
from local_server import LocalServer, serve_files
from typer.testing import CliRunner

from clare.cli.main import app
from clare.data.catalogue import CATALOGUE, Archive

RANDOM = "backbone.weights=random"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, as HF_HOME sets it for a process."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """A server without files."""
    with serve_files() as running:
        yield running


def run(*words: str | Path, expected: int) -> str:
    """Run the command, expect an exit code and return what is printed, errors included."""
    result = CliRunner().invoke(app, ["data", *map(str, words)], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == expected, result.output
    return result.output


def sets(*overrides: str) -> list[str]:
    """Return overrides as arguments."""
    return [word for override in overrides for word in ("--set", override)]


def write_preset(folder: Path, root: Path, dataset: str) -> Path:
    """Write a preset for a data set, with a backbone that needs no weights."""
    path = folder / "mine.toml"
    path.write_text(
        f'description = "mine"\n[data]\ndataset = "{dataset}"\nroot = "{root}"\n[stream]\nincrement = 2\n'
        '[backbone]\nname = "vit_tiny_patch16_224"\nweights = "random"'
    )
    return path


def test_the_embedded_stream_comes_with_the_package() -> None:
    output = run("quickdraw", expected=0)
    assert "comes with the package: 200 classes, 16,000 training and 4,000 test images" in output
    assert "the weights of quickdraw-vit come with the package" in output
    assert run("quickdraw", "--fetch", expected=0) == output


@pytest.mark.parametrize("preset", ["imagenet-r-10x20", "imagenet-a-50x4", "objectnet-10x20", "omnibenchmark1k-100x10"])
def test_what_is_missing_is_told_with_its_origin_its_room_and_what_to_do(preset: str, tmp_path: Path) -> None:
    output = run(preset, *sets(f"data.root={tmp_path / 'data'}"), expected=1)
    data, weights = output.split("the weights of")
    for word in ("missing", "from:    https://", "licence: ", "holds:   ", " classes", "space:   ", " free at ", "→ "):
        assert word in data, word
    assert f"layout:  {tmp_path / 'data'}/" in data
    assert "are not in the Hub's cache" in weights
    assert "about 410 MB; " in weights
    assert "/resolve/main/model.safetensors elsewhere and set `backbone.weights`" in weights
    command = shlex.join(["clare", "data", preset, "--set", f"data.root={tmp_path / 'data'}", "--fetch"])
    assert f"`{command}`" in data
    assert f"`{command}` downloads them" in weights


def test_another_backbone_is_looked_for(tmp_path: Path) -> None:
    output = run("imagenet-r-10x20", "--backbone", "vit-b16-in1k", *sets(f"data.root={tmp_path}"), expected=1)
    assert "the weights of vit_base_patch16_224.augreg_in21k_ft_in1k are not in the Hub's cache" in output
    assert "about 346 MB" in output
    assert "clare data imagenet-r-10x20+vit-b16-in1k " in output


def test_numbers_that_differ_are_told(tmp_path: Path) -> None:
    write_tree(tmp_path / "imagenet-r")
    output = run("imagenet-r-10x20", *sets(f"data.root={tmp_path}", RANDOM), expected=1)
    assert "differs ImageNet-R: 3 classes, 9 training and 6 test images" in output
    assert "200 classes were expected and 3 are here" in output
    assert "30,000 images in all were expected and 15 are here" in output
    assert "starts from random weights" in output


def test_quoted_numbers_that_differ_are_only_remarked(tmp_path: Path) -> None:
    write_tree(tmp_path / "imagenet-a", num_classes=200, num_train=1, num_test=1, size=2)
    output = run("imagenet-a-50x4", *sets(f"data.root={tmp_path}", RANDOM), expected=0)
    assert "ready   ImageNet-A: 200 classes" in output
    assert "5,981 training images were expected and 200 are here, but that number is quoted and may be off" in output


def test_what_cannot_be_used_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "objectnet" / "train").mkdir(parents=True)
    output = run("objectnet-10x20", *sets(f"data.root={tmp_path}", RANDOM), expected=1)
    assert f"missing ObjectNet: there is no folder '{tmp_path / 'objectnet' / 'test'}'" in output
    assert "forbids to tune the parameters of any model" in output


def test_own_images_and_own_weights(tmp_path: Path) -> None:
    write_tree(tmp_path / "pictures")
    preset = write_preset(tmp_path, tmp_path / "pictures", "folder")
    assert "ready   your images: 3 classes, 9 training and 6 test images" in run(preset, expected=0)
    weights = sets(f"backbone.weights={tmp_path / 'w.safetensors'}")
    assert f"are not at '{tmp_path / 'w.safetensors'}'" in run(preset, *weights, expected=1)
    (tmp_path / "w.safetensors").write_bytes(b"")
    assert f"ready   the weights of vit_tiny_patch16_224: '{tmp_path / 'w.safetensors'}'" in run(
        preset, *weights, expected=0
    )
    missing = write_preset(tmp_path, tmp_path / "nowhere", "folder")
    assert "put your images there" in run(missing, "--fetch", expected=1)


def test_cifar100_is_fetched_once(server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = pack_tar(write_cifar(tmp_path / "cifar-100-python"), tmp_path / "cifar.tar.gz")
    server.files["/cifar.tar.gz"] = content
    archive = Archive("cifar-100-python.tar.gz", f"{server.address}/cifar.tar.gz", md5_of(content), num_bytes=1)
    monkeypatch.setitem(CATALOGUE, "cifar100", replace(CATALOGUE["cifar100"], archive=archive))
    preset = write_preset(tmp_path, tmp_path / "data", "cifar100")
    assert "put it there" in run(preset, expected=1)
    for _ in range(2):
        output = run(preset, "--fetch", expected=1)
        assert "100 classes were expected and 3 are here" in output
        assert "error" not in output
    # torchvision asks once where the address leads, and once for the file.
    assert server.num_gets() == 2


def test_without_a_connection_both_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    output = run("omnibenchmark1k-100x10", "--fetch", *sets(f"data.root={tmp_path}"), expected=1)
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2
    assert all("HF_HUB_OFFLINE forbids to look beyond the cache" in error for error in errors)
    assert "set `backbone.weights` to the file" in errors[0]
    assert f"put it at '{tmp_path / 'omnibenchmark1k.tar.gz'}'" in errors[1]


def test_a_paper_preset_is_fetched_from_the_hub(server: LocalServer, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "omnibenchmark1k", num_classes=1000, num_train=1, num_test=1, size=2)
    data = "/datasets/LMMM2025/OmniBenchmark-1K/resolve/main/omnibenchmark1k.tar.gz"
    weights = "/timm/vit_base_patch16_224.augreg_in21k/resolve/main/model.safetensors"
    server.files.update({data: pack_tar(tree, tmp_path / "a.tar.gz"), weights: b"weights"})
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    words = ["data", "omnibenchmark1k-100x10", "--fetch", *sets(f"data.root={tmp_path / 'data'}")]
    result = subprocess.run(
        [sys.executable, "-m", "clare", *words],
        # The Hub's client reads its surroundings when it is imported, so they need a process of their own.
        env={**inherited, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": server.address, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ready   OmniBenchmark-1K: 1,000 classes, 1,000 training and 1,000 test images" in result.stdout
    assert "ready   the weights of vit_base_patch16_224.augreg_in21k, in the Hub's cache: " in result.stdout
    assert server.num_gets() == 2
    assert [entry.name for entry in (tmp_path / "data").iterdir()] == ["omnibenchmark1k"]
