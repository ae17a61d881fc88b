"""From a head's settings to the head."""

from clare.heads.discriminant import DiscriminantHead
from clare.heads.head import Head, HeadSettings
from clare.heads.projected import ProjectedHead
from clare.heads.quadratic import QuadraticHead
from clare.seeds import generator_at


def make_head(num_features: int, settings: HeadSettings, seed: int) -> Head:
    """Return the head of a strategy; what it draws depends on the seed alone."""
    if settings.strategy == "discriminant":
        return DiscriminantHead(num_features, settings)
    if settings.strategy == "quadratic":
        return QuadraticHead(num_features, settings)
    if settings.strategy == "projected":
        return ProjectedHead(num_features, settings, generator_at(seed, "head"))
    return Head(num_features, settings)
