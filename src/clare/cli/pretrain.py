"""`clare pretrain`."""

import json
from pathlib import Path

import torch
from rich.console import Console

from clare.backbones.pretrain import PretrainSettings, pretrain
from clare.data.sources import DataSettings, load_dataset
from clare.engine.ranks import resolve_device
from clare.errors import SettingsError
from clare.files import write_json, write_tensors
from clare.presets.load import parse_override
from clare.settings import build_settings, merge


def pretrain_command(console: Console, out: Path, overrides: list[str], device: str) -> None:
    """Train the embedded backbone, and write its weights and how they were made."""
    if out.suffix != ".safetensors":
        raise SettingsError(f"--out got '{out}'; give a file name that ends in .safetensors")
    values: dict[str, object] = {}
    for override in overrides:
        values = merge(values, parse_override(override))
    settings = build_settings(PretrainSettings, values, "")
    dataset = load_dataset(DataSettings(dataset="quickdraw-pretrain", channels=1))
    every = max(1, settings.epochs // 20)

    def report(epoch: int, loss: float) -> None:
        if (epoch + 1) % every == 0 or epoch + 1 == settings.epochs:
            console.print(f"epoch {epoch + 1} of {settings.epochs}: loss {loss:.3f}", highlight=False)

    result = pretrain(dataset, settings, torch.device(resolve_device(device)), report)
    write_tensors(out, result.weights)
    facts = {
        "settings": json.loads(settings.model_dump_json()),
        "num_classes": len(dataset.classes),
        "num_train": len(dataset.train),
        "num_test": len(dataset.test),
        "test_accuracy": round(result.accuracy, 4),
        "seconds": round(result.seconds, 1),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if resolve_device(device) == "cuda" else "cpu",
    }
    write_json(out.with_suffix(".json"), facts)
    console.print(f"{out}: {result.accuracy:.1%} of the held-out drawings of its {len(dataset.classes)} classes")
