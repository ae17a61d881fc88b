"""`clare doctor`: is everything here, and does it work together?"""

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from clare.errors import ClareError

if TYPE_CHECKING:
    import torch

PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "lightning",
    "safetensors",
    "numpy",
    "pillow",
    "pydantic",
    "typer",
    "rich",
    "matplotlib",
    "huggingface_hub",
)
COMPROMISED_LIGHTNING = ("2.6.2", "2.6.3")


class Finding(NamedTuple):
    """One thing that was looked at."""

    is_good: bool
    what: str
    remedy: str = ""


def doctor_command(console: Console) -> int:
    """Print all findings and return the exit code: 0 when all is well, 2 otherwise."""
    findings = list(examine(version, importlib.import_module))
    for finding in findings:
        mark = "[green]ok[/]   " if finding.is_good else "[red]wrong[/]"
        console.print(f"{mark} {finding.what}", highlight=False, soft_wrap=True)
        if finding.remedy:
            console.print(f"      → {finding.remedy}", highlight=False, soft_wrap=True)
    is_good = all(finding.is_good for finding in findings)
    console.print("everything is in place" if is_good else "something needs attention, see above")
    return 0 if is_good else 2


def examine(version_of: Callable[[str], str], import_module: Callable[[str], object]) -> Iterator[Finding]:
    """Look at Python, the packages, torchvision's operators, the device, backbones for photos and the embedded data."""
    is_new = sys.version_info >= (3, 11)
    yield Finding(is_new, f"Python {platform.python_version()}", "" if is_new else "install Python 3.11 or newer")
    packages = [_package(name, version_of) for name in PACKAGES]
    yield from packages
    if not all(finding.is_good for finding in packages):
        return
    vision = torchvision_finding(version_of, import_module)
    yield vision
    if not vision.is_good:
        return
    import torch

    from clare.backbones.vit import BackboneSettings, load_backbone
    from clare.data.sources import DataSettings, load_dataset

    if torch.cuda.is_available():
        yield Finding(True, f"GPU: {torch.cuda.get_device_name()} ({torch.cuda.device_count()} in all)")
    else:
        yield Finding(True, f"no GPU: runs use {torch.get_num_threads()} CPU threads of {os.cpu_count()} in fp32")
    yield from _backbones(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    free = shutil.disk_usage(".").free / 1e9
    yield Finding(
        free > 1, f"{free:.0f} GB free on this disk", "" if free > 1 else "free some space: runs write checkpoints"
    )
    try:
        dataset = load_dataset(DataSettings(dataset="quickdraw", channels=1))
        backbone = load_backbone(BackboneSettings())
        yield Finding(True, f"embedded stream: {len(dataset.classes)} classes; backbone {backbone.fingerprint}")
    except ClareError as error:
        yield Finding(False, f"the embedded benchmark cannot be loaded: {error}", "install clare again")


def _backbones(device: "torch.device") -> Iterator[Finding]:
    """Suggest backbones for photos."""
    from clare.backbones.suggest import best, suggestions
    from clare.data.placement import this_machine

    found = suggestions(device)
    for one in found:
        where = "weights are here" if one.is_here else "weights are fetched once, which needs a network"
        size = f"{one.num_bytes / 1e6:.0f} MB, about {one.speed:.1f} images/s here"
        yield Finding(True, f"backbone for photos: {one.name}, {size}; {where}")
    here, free = [one for one in found if one.is_here], this_machine(device).device_bytes
    without = best(here, free).name if here else "none, or a weights file"
    suited = f"for photos this machine suits clare learn --backbone {best(found, free).name}"
    yield Finding(True, f"{suited}; without a network {without}")


def _package(name: str, version_of: Callable[[str], str]) -> Finding:
    """Tell whether a package is installed, and refuse releases known to be harmful."""
    try:
        found = version_of(name)
    except PackageNotFoundError:
        return Finding(False, f"{name} is not installed", f"run `make install`, or install {name}")
    if name == "lightning" and found in COMPROMISED_LIGHTNING:
        return Finding(False, f"lightning {found} was a compromised release", "install another version at once")
    return Finding(True, f"{name} {found}")


def torchvision_finding(version_of: Callable[[str], str], import_module: Callable[[str], object]) -> Finding:
    """Tell whether torchvision fits torch; a CPU-only torch beside the ordinary torchvision fails at import."""
    try:
        import_module("torchvision")
    except Exception as error:
        torch_version = version_of("torch")
        if "torchvision::nms" in str(error):
            return Finding(
                False,
                f"torchvision {version_of('torchvision')} does not work with torch {torch_version}: "
                "its operators (torchvision::nms) are missing, as happens beside a CPU-only build of torch",
                "remove both and install them together from the same place: "
                "`pip uninstall torch torchvision`, then `make install`",
            )
        return Finding(False, f"torchvision cannot be imported: {error}", "install torch and torchvision together")
    return Finding(True, "torchvision works with torch")
