"""The gradients of single images, which batches average away.

Shapes: N numbers, B images, C images at a time.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

NUM_AT_ONCE = 8
"""Images whose gradients are held at once; each is as long as what is trained."""

Single = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(values (N,), an image (C, S, S), its label) -> one number"""


def sample_gradients(function: Single, values_N: Tensor, images: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yield the gradient of a number that each image has, for a few images at a time, shape (C, N)."""
    each = torch.func.vmap(torch.func.grad(function), in_dims=(None, 0, 0))
    values = values_N.detach()
    # Only this form of attention has a rule for gradients of many images at once.
    with sdpa_kernel(SDPBackend.MATH):
        for some, own in zip(torch.split(images, NUM_AT_ONCE), torch.split(labels, NUM_AT_ONCE), strict=True):
            # A rank's share of the last batch may be padding alone.
            if len(some):
                yield each(values, some, own)


def some_of(images: Tensor, labels: Tensor, weights: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return those of a batch that are no padding, or a random share of them."""
    chosen = weights > 0
    if share < 1:
        chosen &= torch.rand(len(weights), device=weights.device) < share
    return images[chosen], labels[chosen]
