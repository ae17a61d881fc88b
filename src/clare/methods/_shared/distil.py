"""Distillation: the answers of a network before a task, which the network of after it is to keep."""

import torch.nn.functional as F
from torch import Tensor


def distilled(logits_BK: Tensor, before_BK: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of each image's softened answers with those of before; closed places do not count."""
    target = F.softmax(before_BK / temperature, dim=1)
    found = F.log_softmax(logits_BK / temperature, dim=1)
    # A closed place has probability zero and an infinite logarithm, whose product would be no number.
    return -(target * found.masked_fill(target == 0, 0)).sum(1)
