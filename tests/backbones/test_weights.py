"""Weights are found in the package, in a file and in the Hub's cache, and come from the Hub whole or not at all."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import constants
from local_server import LocalServer, serve_files
from safetensors.torch import save, save_file

from clare.backbones.hub import published
from clare.backbones.vit import BackboneSettings, freeze, load_backbone
from clare.backbones.weights import Weights, fetch_weights, find_weights, weights_size
from clare.errors import BackboneError
from clare.hub import SITE, HubFile, without_connection
from clare.index import read_index

NAME = "vit_tiny_patch16_224.augreg_in21k"
SIZES = {"depth": 1, "embed_dim": 24, "num_heads": 2}
HUB_FILE = HubFile(f"timm/{NAME}", "model.safetensors")
HUB_PATH = f"/timm/{NAME}/resolve/main/model.safetensors"

LOAD = """
import sys
from clare.backbones.vit import BackboneSettings, load_backbone
print(load_backbone(BackboneSettings.model_validate_json(sys.argv[1])).fingerprint)
"""


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """A server without files."""
    with serve_files() as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, as HF_HOME sets it for a process."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def published_weights() -> tuple[dict[str, torch.Tensor], str]:
    """Return weights with a classifier, as they are published, and the fingerprint of the backbone without it."""
    torch.manual_seed(0)
    model = timm.create_model(NAME, num_classes=7, img_size=32, **SIZES)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    return weights, freeze(model, None).fingerprint


def small(weights: str = "pretrained") -> BackboneSettings:
    """Return settings of a backbone of the published sizes."""
    return BackboneSettings(name=NAME, weights=weights, image_size=32, architecture=SIZES)


def test_weights_of_every_kind_are_found(tmp_path: Path) -> None:
    assert find_weights(BackboneSettings()).are_here
    assert find_weights(BackboneSettings()).kind == "package"
    assert find_weights(small("random")) == Weights("random")
    assert find_weights(small("random")).are_here
    file = tmp_path / "weights.safetensors"
    assert not find_weights(small(str(file))).are_here
    file.write_bytes(b"")
    assert find_weights(small(str(file))) == Weights("file", file)
    assert find_weights(small(str(file))).are_here
    assert find_weights(small()).hub == HUB_FILE
    with pytest.raises(BackboneError, match="did you mean 'vit_tiny_patch16_224"):
        find_weights(BackboneSettings(name="vit_tiny_patch16_224.augreg_in22k"))


def test_a_model_without_published_weights_has_no_file_on_the_hub() -> None:
    name = "vit_small_patch16_18x2_224"
    assert published(name)["repository"] is None
    assert find_weights(BackboneSettings(name=name)) == Weights("elsewhere")


def test_the_papers_weights_are_as_large_as_the_hub_says() -> None:
    assert round(weights_size("vit_base_patch16_224.augreg_in21k") / 1e6) == 410
    assert round(weights_size("vit_base_patch16_224.augreg_in21k_ft_in1k") / 1e6) == 346


def test_weights_that_no_preset_names_are_counted() -> None:
    name = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    assert name not in read_index()["weights"]
    assert weights_size(name) == 22_869_664


def test_a_published_file_is_loaded_without_its_classifier(tmp_path: Path) -> None:
    weights, fingerprint = published_weights()
    save_file(weights, tmp_path / "model.safetensors")
    assert load_backbone(small(str(tmp_path / "model.safetensors"))).fingerprint == fingerprint


def test_weights_are_fetched_once_and_then_used_without_a_connection(
    server: LocalServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, fingerprint = published_weights()
    server.files[HUB_PATH] = save(weights)
    for _ in range(2):
        path = fetch_weights(HUB_FILE, server.address)
        assert cache in path.parents
        assert path.read_bytes() == server.files[HUB_PATH]
    assert server.num_gets() == 1
    assert find_weights(small()) == Weights("hub", path, HUB_FILE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_backbone(small()).fingerprint == fingerprint
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    result = subprocess.run(
        [sys.executable, "-c", LOAD, small().model_dump_json()],
        env={**inherited, "HF_HOME": str(cache.parent), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == fingerprint


@pytest.mark.usefixtures("cache")
def test_without_a_connection_and_a_cache_the_file_and_its_place_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not find_weights(small()).are_here
    with pytest.raises(BackboneError) as caught:
        load_backbone(small())
    assert str(caught.value).startswith(f"the weights of '{NAME}' could not be fetched")
    assert without_connection(HUB_FILE) in str(caught.value)
    with pytest.raises(BackboneError) as caught:
        fetch_weights(HUB_FILE)
    assert "HF_HUB_OFFLINE forbids to look beyond the cache" in str(caught.value)
    assert f"{SITE}/timm/{NAME}/resolve/main/model.safetensors" in str(caught.value)


@pytest.mark.usefixtures("cache")
def test_weights_that_do_not_fit_or_are_not_there_leave_none(server: LocalServer) -> None:
    server.files[HUB_PATH] = bytes(4_000_000)
    with pytest.raises(BackboneError, match="needs 4 MB and 4 MB are free"):
        fetch_weights(HUB_FILE, server.address, lambda path: 3_999_999)
    assert server.num_gets() == 0
    server.files.clear()
    with pytest.raises(BackboneError, match=r"could not be fetched \(the Hub does not have it\)"):
        fetch_weights(HUB_FILE, server.address)
    assert not find_weights(small()).are_here
