"""A second set of weights of a frozen backbone in one flat parameter, which stands in for them in a forward pass."""

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call

from clare.backbones.families import Model


class BackboneWeights(nn.Module):
    """The scalars of a backbone's parameters, of all or of those named with a word, free to move; it keeps its own."""

    def __init__(self, model: Model, word: str = "") -> None:
        super().__init__()
        self.shapes = {name: parameter.shape for name, parameter in model.named_parameters() if word in name}
        self.values = nn.Parameter(flat_weights(model, word), requires_grad=False)

    def features(self, model: Model, images: Tensor, other: Tensor | None = None) -> Tensor:
        """Return the features that the backbone, its classifier dropped, would have with these or other weights."""
        features: Tensor = functional_call(model, self.weights(other), (images,))
        return features

    def weights(self, other: Tensor | None = None) -> dict[str, Tensor]:
        """Return these or other weights by their names in the backbone, split off a flat vector at once."""
        values = self.values if other is None else other
        parts = torch.split(values, [math.prod(shape) for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


def flat_weights(model: Model, word: str = "") -> Tensor:
    """Return a copy of the parameters of a backbone with this word in their names, one after another."""
    return torch.cat([parameter.detach().flatten() for name, parameter in model.named_parameters() if word in name])
