"""Seeds for every random draw, derived from the run's seed and the place of the draw."""

import hashlib

import torch

from clare.errors import SettingsError

NUM_SEEDS = 2**32


def check_seed(seed: int) -> None:
    """Refuse a seed that a preset could not have."""
    if not (isinstance(seed, int) and 0 <= seed < NUM_SEEDS):
        raise SettingsError(f"the seed is {seed!r}; choose one from 0 to {NUM_SEEDS - 1}")


def derive_seed(seed: int, *place: int | str) -> int:
    """Return a 63-bit seed that depends on the run's seed and on every part of the place."""
    text = ":".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator_at(seed: int, *place: int | str) -> torch.Generator:
    """Return a CPU generator seeded for one place."""
    return torch.Generator().manual_seed(derive_seed(seed, *place))
