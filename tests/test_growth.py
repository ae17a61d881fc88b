"""Room for saved tensors: only where a module says that it grows."""

import torch
from torch import Tensor, nn

from clare.growth import Growing, make_room


class Part(nn.Module, Growing):
    grows = ("rows", "counts")
    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(0, 3), requires_grad=False)
        self.fixed = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("counts", torch.zeros(4, dtype=torch.int64))


def test_what_grows_takes_the_sizes_of_saved_tensors_and_all_else_stays() -> None:
    whole = nn.Sequential(Part())
    part = whole[0]
    assert isinstance(part, Part)
    fixed, counts = part.fixed, part.counts
    make_room(whole, {"0.rows": torch.ones(5, 3), "0.counts": torch.ones(4), "0.fixed": torch.ones(7)})
    assert isinstance(part.rows, nn.Parameter)
    assert (part.rows.shape, part.rows.requires_grad) == ((5, 3), False)
    assert part.fixed is fixed
    assert part.counts is counts
    make_room(part, {"counts": torch.ones(6), "rows": torch.ones(5)})
    assert (part.counts.shape, part.counts.dtype, part.rows.shape) == ((6,), torch.int64, (5, 3))
