"""Commands that only list, and what they must not import to do so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_runs import write_run
from own_worlds import drawings, tiny_weights, write_pictures

from clare.classifier.classifier import Classifier

HEAVY = ("fastapi", "lightning", "matplotlib", "ray", "timm", "torch", "torchvision")
CODE = f"""
import atexit, sys
sys.argv[0] = "clare"
atexit.register(lambda: print("imported", *sorted(set({HEAVY!r}) & sys.modules.keys()), file=sys.stderr))
from clare.cli.main import main
main()
"""


def run(*words: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own, which says last what it imported."""
    return subprocess.run(
        [sys.executable, "-c", CODE, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--help", "presets"),
        ("--version", "clare "),
        ("train --help", "--backbone"),
        ("learn --help", "--backbone"),
        ("presets", "cifar100-10x10"),
        ("presets quickdraw", '"dataset": "quickdraw"'),
        ("presets quickdraw --explain", "preset quickdraw"),
        ("methods", "ranpac"),
        ("methods clare", "method.sparsity"),
        ("data quickdraw", "16,000 training"),
    ],
)
def test_what_only_lists_imports_nothing_heavy(words: str, shown: str) -> None:
    done = run(*words.split())
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert done.stderr.splitlines() == ["imported"]


def test_a_narrow_terminal_cuts_no_value() -> None:
    done = run("presets", "cifar100-10x10+vits14-dinov2", "--explain", COLUMNS="70")
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout
    assert all(part in done.stdout for part in ("vit_small_patch14_din", "lvd142m"))


@pytest.mark.parametrize("preset", ["cifar100-10x10", "imagenet-r-10x20+vit-b16-in1k"])
def test_what_is_missing_is_said_without_torch(preset: str, tmp_path: Path) -> None:
    done = run("data", preset, "--set", f"data.root={tmp_path}", HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 1
    assert "are not in the Hub's cache" in done.stdout
    assert done.stderr.splitlines() == ["imported"]


def test_a_mistyped_method_is_answered_without_torch() -> None:
    done = run("methods", "simplecli")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no method 'simplecli' (did you mean 'simplecil'?)")
    assert done.stderr.splitlines()[-1] == "imported"


def test_runs_are_shown_without_torch(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"clare-{seed}", seed=seed)
    done = run("show", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "clare" in done.stdout
    assert done.stderr.splitlines() == ["imported"]


def test_a_shell_completes_commands_without_torch() -> None:
    done = run(_CLARE_COMPLETE="complete_bash", COMP_WORDS="clare pres", COMP_CWORD="1")
    assert done.stdout.split() == ["presets"]
    assert done.stderr.splitlines() == ["imported"]


def test_an_image_is_named_without_what_only_training_or_serving_needs(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures", "cat", "dog", number=2)
    model = Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), device="cpu")
    model.learn(drawings("cat", "dog"), mode="quick")
    done = run("predict", tmp_path / "model", pictures / "cat", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.splitlines()[-1] == "imported timm torch torchvision"


def test_what_needs_torch_says_so_here() -> None:
    done = run("methods", "nowhere.py:Method")
    assert done.returncode == 2
    assert "torch" in done.stderr.splitlines()[-1]
