"""Backbones for photos that suit a machine: how large they are, how fast here, and whether their weights are here."""

import time
from typing import NamedTuple

import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from clare.backbones.hub import count_bytes, outline
from clare.backbones.settings import BackboneSettings
from clare.backbones.weights import find_weights

SUGGESTED = (
    "vit_tiny_patch16_224.augreg_in21k",
    "convnext_nano.in12k",
    "vit_small_patch16_dinov3.lvd1689m",
    "convnext_tiny.dinov3_lvd1689m",
    "vit_base_patch16_dinov3.lvd1689m",
    "vit_large_patch16_dinov3.lvd1689m",
)
"""From small to large."""
PROBE = "vit_tiny_patch16_224"
SECONDS = 1.0
LEAST_SPEED = 20.0
"""Images per second with which a lesson of a thousand pictures, seen in three views, takes some minutes."""
COPIES = 4
"""How many times its weights a backbone may need in memory while it works."""


class Suggestion(NamedTuple):
    """A backbone, the bytes of its weights, how many images a second it would see, and whether its weights are here."""

    name: str
    num_bytes: int
    speed: float
    is_here: bool


def suggestions(device: torch.device) -> list[Suggestion]:
    """Return backbones with speeds estimated from what one small model does on the device within a second."""
    rate = _measured_rate(device)
    return [
        Suggestion(
            name,
            count_bytes(name),
            rate / num_operations(name),
            find_weights(BackboneSettings(name=name)).are_here,
        )
        for name in SUGGESTED
    ]


def best(found: list[Suggestion], free_bytes: int) -> Suggestion:
    """Return the largest that is fast enough and fits the memory, or else the smallest."""
    fitting = [one for one in found if one.speed >= LEAST_SPEED and COPIES * one.num_bytes <= free_bytes]
    return max(fitting or found[:1], key=lambda one: one.num_bytes)


def num_operations(name: str) -> float:
    """Return how many operations a timm model needs for an image of its usual size; nothing is computed."""
    model = outline(name).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.empty(1, *model.pretrained_cfg["input_size"], device="meta"))
    return float(counter.get_total_flops())


@torch.no_grad()
def _measured_rate(device: torch.device) -> float:
    """Return how many operations a second a small model with random weights makes of batches of noise."""
    with torch.random.fork_rng(devices=[]):
        model = timm.create_model(PROBE, num_classes=0).to(device).eval()
    images = torch.zeros(8 if device.type == "cpu" else 128, 3, 224, 224, device=device)
    float(model(images).sum())
    num_images, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SECONDS:
        float(model(images).sum())
        num_images += len(images)
    return num_images / passed * num_operations(PROBE)
