"""Backbones for photos that suit a machine: how large they are, how fast here, and whether their weights are here."""

import time
from typing import NamedTuple

import timm
import torch

from clare.backbones.settings import BackboneSettings
from clare.backbones.weights import find_weights, weights_size

SUGGESTED = {
    "vit_tiny_patch16_224.augreg_in21k": 2.5,
    "convnext_nano.in12k": 4.9,
    "vit_small_patch16_dinov3.lvd1689m": 12.5,
    "convnext_tiny.dinov3_lvd1689m": 8.9,
    "vit_base_patch16_dinov3.lvd1689m": 47.1,
    "vit_large_patch16_dinov3.lvd1689m": 164.7,
}
"""From small to large, with how many thousand million operations an image takes."""
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


@torch.no_grad()
def suggestions(device: torch.device) -> list[Suggestion]:
    """Return backbones with speeds estimated from what the smallest, with random weights, does within a second."""
    smallest = next(iter(SUGGESTED))
    with torch.random.fork_rng(devices=[]):
        model = timm.create_model(smallest, num_classes=0).to(device).eval()
    images = torch.zeros(8 if device.type == "cpu" else 128, 3, 224, 224, device=device)
    float(model(images).sum())
    started, passed, num_images = time.perf_counter(), 0.0, 0
    while num_images == 0 or passed < SECONDS:
        float(model(images).sum())
        num_images += len(images)
        passed = time.perf_counter() - started
    rate = num_images / passed * SUGGESTED[smallest]
    return [
        Suggestion(name, weights_size(name), rate / operations, find_weights(BackboneSettings(name=name)).are_here)
        for name, operations in SUGGESTED.items()
    ]


def best(found: list[Suggestion], free_bytes: int) -> Suggestion:
    """Return the largest that is fast enough and fits the memory, or else the smallest."""
    fitting = [one for one in found if one.speed >= LEAST_SPEED and COPIES * one.num_bytes <= free_bytes]
    return max(fitting or found[:1], key=lambda one: one.num_bytes)
