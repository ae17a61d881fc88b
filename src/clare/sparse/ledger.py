"""Which task owns which coordinates, and how many are left."""

import torch
from torch import Tensor, nn


class Ledger(nn.Module):
    """Every task's coordinates and the values it left there, one after another, and the mask of what is free."""

    free: Tensor
    coordinates: Tensor
    values: Tensor

    def __init__(self, num_coordinates: int) -> None:
        super().__init__()
        self.register_buffer("free", torch.ones(num_coordinates, dtype=torch.bool))
        self.register_buffer("coordinates", torch.empty(0, dtype=torch.int32))
        self.register_buffer("values", torch.empty(0))
        self.lengths: list[int] = []

    @property
    def num_coordinates(self) -> int:
        """All coordinates, free or used."""
        return len(self.free)

    @property
    def num_free(self) -> int:
        """Coordinates that no task has claimed."""
        return int(self.free.sum())

    def claim(self, chosen: Tensor, values: Tensor) -> None:
        """Give the chosen coordinates to the next task, with the values it leaves there."""
        coordinates = chosen.nonzero().squeeze(1)
        self.coordinates = torch.cat([self.coordinates, coordinates.to(torch.int32)])
        self.values = torch.cat([self.values, values.detach()[chosen]])
        self.free = self.free & ~chosen
        self.lengths.append(len(coordinates))

    def claim_nothing(self) -> None:
        """Note a task that claims no coordinate, since every task has its claim here."""
        self.lengths.append(0)

    def claim_of(self, task: int) -> tuple[Tensor, Tensor]:
        """Return one task's coordinates and values."""
        start = sum(self.lengths[:task])
        part = slice(start, start + self.lengths[task])
        return self.coordinates[part].long(), self.values[part]

    def grow(self, num_new: int, retires: bool = False) -> None:
        """Add free coordinates; those that were there before may be retired, which nobody claims from then on."""
        old = torch.zeros_like(self.free) if retires else self.free
        self.free = torch.cat([old, old.new_ones(num_new)])

    def resize(self, lengths: list[int], num_coordinates: int | None = None) -> None:
        """Make room for the claims of saved tasks before their tensors are loaded, in a pool of another size maybe."""
        if num_coordinates is not None:
            self.free = self.free.new_ones(num_coordinates)
        self.lengths = list(lengths)
        self.coordinates = self.coordinates.new_zeros(sum(lengths))
        self.values = self.values.new_zeros(sum(lengths))

    def release(self) -> Tensor:
        """Take back the last claim and return its coordinates."""
        coordinates, _ = self.claim_of(-1)
        keep = len(self.coordinates) - self.lengths.pop()
        self.coordinates, self.values = self.coordinates[:keep].clone(), self.values[:keep].clone()
        self.free = self.free.index_fill(0, coordinates, True)
        return coordinates
