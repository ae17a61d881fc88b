"""Save the folders of this release for the tests of all later ones: PYTHONPATH=tests python tests/releases/save.py."""

import json
import os
from contextlib import suppress
from pathlib import Path

import torch
from own_worlds import FAST, SIZES, drawings, odds
from run_outcome import Stop, StopAtTask

from clare.backbones.vit import BackboneSettings
from clare.classifier.classifier import Classifier
from clare.engine.run import run_experiment
from clare.presets.load import make_experiment
from clare.testing.world import write_preset
from clare.version import __version__


def save(folder: Path) -> None:
    """Write a preset, a model of four classes with its answers, and a run that stopped before its last task."""
    folder.mkdir()
    # The folders name their backbone as it was named to them: from within, so that they can be moved.
    os.chdir(folder)
    torch.set_num_threads(1)
    preset = write_preset(Path())
    backbone = BackboneSettings(weights="tiny.safetensors", architecture=SIZES)
    model = Classifier("model", backbone=backbone, method="clare", settings=FAST, device="cpu")
    model.learn(drawings("cat", "dog"))
    before = answers(model)
    model.learn(drawings("bus", "van"))
    Path("answers.json").write_text(json.dumps({"before": before, "after": answers(model)}, indent=1) + "\n")
    with suppress(Stop):
        run_experiment(make_experiment(str(preset), "clare"), Path("run"), StopAtTask(2))


def answers(model: Classifier) -> list[dict[str, float]]:
    """Return the probability of every class for some pictures, a picture of each class among them."""
    asked = [image for images in drawings("cat", "dog", "bus", "van", number=2, seed=5).values() for image in images]
    return [odds(answer) for answer in model.guess(asked, top=9)]


if __name__ == "__main__":
    save(Path(__file__).parent / __version__)
