"""What the methods have in common that update the projections to queries, keys and values by products of low rank."""

import torch
from torch import Tensor

from clare.methods._shared.recipe import RecipeMethod
from clare.methods.base import bare_features
from clare.methods.protocols import Deployed, Deploys
from clare.steps import Pass
from clare.tuners.lora import QkvLora


class LowRankMethod(RecipeMethod, Deploys):
    """A method with updates of tasks before, merged, and the product that the task at hand trains."""

    lora: QkvLora
    merged: Tensor

    def update(self) -> Tensor:
        """Return the sum of all tasks' updates, shape (L, P, D, D)."""
        return self.merged + self.lora.product()

    def features(self, images: Tensor) -> Tensor:
        """Return the features with all tasks' updates."""
        with self.lora.active(self.update()):
            return bare_features(self, images)

    def deployed(self) -> Deployed:
        """Return the projections with all updates."""
        return Deployed(self.lora.weights(self.backbone, self.update()))

    def merge(self) -> None:
        """Add the trained update to the merged ones; features do not change."""
        self.merged.add_(self.lora.product())
        self.lora.up.zero_()

    def input_moments(self, name: str) -> Pass:
        """Ask for the second moments of the inputs of every block's projection, augmented as in training."""

        def statistic(images: Tensor, _: Tensor, weights: Tensor) -> dict[str, Tensor]:
            with self.lora.active(self.update()), self.lora.watched(weights) as moments:
                self.backbone.forward_features(images)
            return {"moments": torch.stack(moments), "count": weights.double().sum()}

        return Pass(name, statistic, of="images", view="train")
