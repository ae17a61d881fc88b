"""Ridge regression from random features to classes, out of sums that grow with every task.

Shapes: N images, D features, M random features, C classes of a task, K classes so far.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from clare.errors import ModelError
from clare.heads.head import Head, HeadSettings

CANDIDATES = tuple(10.0**power for power in range(-8, 9))
LARGEST_RIDGE = 1e16
FIT_SHARE = 0.8
NUM_ROWS = 4096
"""Images whose random features are in memory at a time."""


class RidgeHeadSettings(HeadSettings):
    """A linear classifier made of class sums; all that is left to choose is the scale."""

    form: Literal["cosine", "linear"] = Field(
        "linear", description="Logits are products with the rows; this head has no other form."
    )
    scale: float = Field(20.0, gt=0, le=1000, description="Factor on the logits where probabilities are asked for.")

    @model_validator(mode="after")
    def _rows_fit_the_form(self) -> "RidgeHeadSettings":
        """Refuse everything but rows that are solved from class sums."""
        if (self.form, self.strategy) != ("linear", "prototype"):
            raise ValueError(
                f"the form is {self.form} and the strategy is {self.strategy}, but ridge regression makes linear rows "
                "of class sums; use the form linear and prototype"
            )
        return self


def projected(features_ND: Tensor, projection_DM: Tensor) -> Tensor:
    """Return relu(features @ projection) in the projection's type, whatever autocast says, shape (N, M)."""
    with torch.autocast(features_ND.device.type, enabled=False):
        return (features_ND.to(projection_DM.dtype) @ projection_DM).relu()


def one_hot(labels: Tensor, num_classes: int, like: Tensor) -> Tensor:
    """Return a one in the place of each label, zeros elsewhere, shape (N, C)."""
    return F.one_hot(labels, num_classes).to(like)


def add_sums(gram_MM: Tensor, sums_CM: Tensor, features: Tensor, labels: Tensor, projection: Tensor) -> None:
    """Add H^T H and Y^T H of some images to the sums, a chunk of images at a time."""
    for part, part_labels in zip(torch.split(features, NUM_ROWS), torch.split(labels, NUM_ROWS), strict=True):
        hidden = projected(part, projection)
        gram_MM.addmm_(hidden.T, hidden)
        sums_CM.addmm_(one_hot(part_labels, len(sums_CM), hidden).T, hidden)


def ridge_errors(features: Tensor, labels: Tensor, num_classes: int, projection: Tensor) -> Tensor:
    """Return each candidate's mean squared error on the last fifth of the images, fitted to those before them."""
    num_fit, size = int(FIT_SHARE * len(features)), projection.shape[1]
    fit, judged = features[:num_fit], projected(features[num_fit:], projection)
    targets = one_hot(labels, num_classes, judged)
    if num_fit <= size:
        # The same predictions from products of images: a smaller system, and no zero eigenvalues to be rounded.
        hidden = projected(fit, projection)
        system, right, reader = hidden @ hidden.T, targets[:num_fit], judged @ hidden.T
    else:
        system, sums = judged.new_zeros(size, size), judged.new_zeros(num_classes, size)
        add_sums(system, sums, fit, labels[:num_fit], projection)
        right, reader = sums.T, judged
    errors = []
    for ridge in CANDIDATES:
        factor, failed = _factor(system, ridge)
        error = (reader @ torch.cholesky_solve(right, factor) - targets[num_fit:]).square().mean()
        errors.append(torch.where(failed == 0, error, torch.inf))
    return torch.stack(errors).nan_to_num(torch.inf, torch.inf)


def best_ridge(errors: Tensor) -> float:
    """Return the first candidate with the smallest error."""
    values: list[float] = errors.tolist()
    return CANDIDATES[values.index(min(values))]


def solve_ridge(gram_MM: Tensor, sums_KM: Tensor, ridge: float) -> tuple[Tensor, float]:
    """Return rows (K, M) with rows @ (gram + ridge I) = sums, and the ridge: ten times as large until that works."""
    while ridge <= LARGEST_RIDGE:
        factor, failed = _factor(gram_MM, ridge)
        if not bool(failed):
            return torch.cholesky_solve(sums_KM.T, factor).T.contiguous(), ridge
        ridge *= 10
    raise ModelError("the random features have no usable sums; look for features that are not finite numbers")


def _factor(system: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of system + ridge I, and a number that is not zero when there is none."""
    shifted = system.clone()
    shifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    return factor, failed


def pack_symmetric(matrix: Tensor) -> Tensor:
    """Return the lower triangle of a symmetric matrix as a rectangle: row i follows row M - 1 - i."""
    if len(matrix) % 2:
        matrix = F.pad(matrix, (0, 1, 0, 1))
    size = len(matrix)
    long, short = F.pad(matrix[size // 2 :].flip(0), (0, 1)), F.pad(matrix[: size // 2].flip(1), (1, 0))
    return torch.where(_is_long(size, matrix.device), long, short)


def unpack_symmetric(packed: Tensor, size: int) -> Tensor:
    """Undo `pack_symmetric`."""
    even = 2 * len(packed)
    is_long = _is_long(even, packed.device)
    long, short = torch.where(is_long, packed, 0)[:, :-1].flip(0), torch.where(is_long, 0, packed)[:, 1:].flip(1)
    lower = torch.cat([short, long])[:size, :size]
    return lower + lower.tril(-1).T


def _is_long(size: int, device: torch.device) -> Tensor:
    """Mark the places of a packed matrix of even size that hold the longer row of a pair."""
    columns, rows = torch.arange(size + 1, device=device), torch.arange(size // 2, device=device)
    return columns < size - rows[:, None]


class RidgeHead(Head):
    """Rows solved from all classes' sums of random features; the sums are what later tasks need of earlier ones."""

    projection: Tensor
    gram: Tensor
    sums: Tensor

    def __init__(
        self,
        num_features: int,
        num_projected: int,
        dtype: torch.dtype,
        settings: HeadSettings,
        generator: torch.Generator,
    ) -> None:
        super().__init__(num_features, settings)
        self.row_size, self.dtype = num_projected, dtype
        self.register_buffer("projection", torch.randn(num_features, num_projected, generator=generator))
        half = (num_projected + 1) // 2
        # Half of what the square matrix would take, in memory and in every checkpoint.
        self.register_buffer("gram", torch.zeros(half, 2 * half + 1, dtype=dtype))
        self.register_buffer("sums", torch.zeros(0, num_projected, dtype=dtype))
        self.resize(0, 0)

    @property
    def scale(self) -> float:
        """Factor that turns logits, which regress to zero and one, into the arguments of a softmax."""
        return self.settings.scale

    def scores(self, features: Tensor, rows: Tensor) -> Tensor:
        """Return the products of the random features with the rows."""
        hidden = projected(features, self.projection)
        with torch.autocast(hidden.device.type, enabled=False):
            return hidden @ rows.T

    def add(self, features: Tensor, labels: Tensor, num_new: int) -> None:
        """Add the images of a task to the sums."""
        gram, new = unpack_symmetric(self.gram, self.row_size), self.sums.new_zeros(num_new, self.row_size)
        add_sums(gram, new, features, labels, self.projection.to(self.dtype))
        self.gram.copy_(pack_symmetric(gram))
        self.sums = torch.cat([self.sums, new])

    def choose_ridge(self, features: Tensor, labels: Tensor, num_new: int) -> float:
        """Return the ridge that predicts the last fifth of a task's images best from those before them."""
        return best_ridge(ridge_errors(features, labels, num_new, self.projection.to(self.dtype)))

    def solve(self, ridge: float) -> tuple[Tensor, float]:
        """Return the rows of all classes, and the ridge that made them solvable."""
        rows, used = solve_ridge(unpack_symmetric(self.gram, self.row_size), self.sums, ridge)
        return rows.float(), used

    def replace(self, rows: Tensor) -> None:
        """Take over the rows of all classes."""
        self.rows = nn.Parameter(rows.to(self.rows), requires_grad=False)

    def reserve(self, num_rows: int) -> None:
        """No rows are trained, so none are reserved."""

    def resize(self, num_classes: int, block_size: int) -> None:
        """Make room for saved rows and sums before they are loaded."""
        super().resize(num_classes, block_size)
        self.sums = self.sums.new_zeros(num_classes, self.row_size)
