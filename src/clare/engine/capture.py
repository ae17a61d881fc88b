"""Steps recorded as CUDA graphs, which the host starts with one call; compiled on request, and checked before use."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from clare.data.cache import cache_folder
from clare.engine.ranks import Ranks
from clare.engine.step import TrainStep
from clare.steps import Phase

COMPILED = "TORCHINDUCTOR_CACHE_DIR"
"""Names the folder that PyTorch's compiler keeps its work in, otherwise one that the system may clear away."""
NUM_WARM_UPS = 3
NUM_CHECKS = 32
# Compiled features of a ViT of width 192 were wrong in some rows, other ones at every call, under bf16 autocast on an
# H200 with torch 2.11 (pytorch/pytorch#191433 tells of the like), so no compiled program is used unchecked.
# bf16 rounding through a deep ViT reaches 2 per cent of a row; a compiler's mistake is of the order of the row itself.
TOLERANCE = 0.1
FALLBACK = (
    "the compiled {what} gave other results than plain kernels on the same batch, so plain kernels are replayed: "
    "slower, but right"
)

Notice = Callable[[str], None]
Function = TypeVar("Function", bound=Callable[..., Any])


def fuse(function: Function) -> Function:
    """Compile a function into fused kernels for shapes that never change; the next run finds them in the cache."""
    os.environ.setdefault(COMPILED, str(cache_folder("", os.environ) / "compiled"))
    return cast(Function, torch.compile(function, fullgraph=True, dynamic=False))


class CapturedStep(TrainStep):
    """A training step whose whole work is one CUDA graph, replayed on tensors that stay in place."""

    def __init__(self, ranks: Ranks, phase: Phase, fused: bool, notice: Notice) -> None:
        super().__init__(ranks, phase)
        self.plain_loss, self.fused, self.notice = phase.loss, fused, notice
        # Placed by the first batch, whose shape all others have.
        self.inputs = self.labels = self.weights = torch.zeros(0)
        self.share = torch.zeros_like(self.total)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.is_tried = False

    def __call__(self, inputs: Tensor, labels: Tensor, weights: Tensor, num_samples: int) -> None:
        """Copy the batch into place and replay."""
        if not self.is_tried:
            self.inputs, self.labels, self.weights = (torch.empty_like(part) for part in (inputs, labels, weights))
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.weights.copy_(weights)
        self.share.fill_(1 / num_samples)
        if not self.is_tried:
            self.is_tried, self.graph = True, self._capture()
        work = self._work if self.graph is None else self.graph.replay
        work()

    def _capture(self) -> torch.cuda.CUDAGraph | None:
        """Record the step, fused if that is asked and sound, or not at all; state and random numbers are as before."""
        kept = [*(parameter.data for parameter in self.parameters), *self.optimizer.state.values(), self.total]
        before = [tensor.clone() for tensor in kept]
        random = torch.cuda.get_rng_state()

        def rewind() -> None:
            for tensor, value in zip(kept, before, strict=True):
                tensor.copy_(value)
            torch.cuda.set_rng_state(random)

        def moves(graph: torch.cuda.CUDAGraph) -> Tensor:
            rewind()
            graph.replay()
            return torch.cat([(tensor - value).flatten() for tensor, value in zip(kept, before, strict=True)])

        for fused in (True, False) if self.fused else (False,):
            self.loss = fuse(self.plain_loss) if fused else self.plain_loss
            graph = try_record(self._work, "training step", self.notice)
            is_sound = graph is not None and (not fused or repeats(partial(moves, graph)))
            rewind()
            if is_sound:
                return graph
            if graph is not None:
                self.notice(FALLBACK.format(what="training step"))
        return None

    def _work(self) -> None:
        """Do one step on the batch in place."""
        self.compute(self.inputs, self.labels, self.weights, self.share)


class CapturedForward:
    """A function without gradient, replayed as one CUDA graph."""

    def __init__(
        self, ranks: Ranks, function: Callable[..., Tensor], inputs: tuple[Tensor, ...], fused: bool, notice: Notice
    ) -> None:
        self.ranks = ranks
        self.inputs = [part.clone() for part in inputs]
        self.output = inputs[0]
        self.function = function
        with torch.no_grad():
            self.graph = self._capture(function, fused, notice)

    def _capture(self, function: Callable[..., Tensor], fused: bool, notice: Notice) -> torch.cuda.CUDAGraph | None:
        """Record the function, fused if that is asked and sound, or not at all."""
        what = f"function {function.__name__}"
        for fuses in (True, False) if fused else (False,):
            self.function = fuse(function) if fuses else function
            self.graph = try_record(self._work, what, notice)
            if self.graph is not None:
                if not fuses or self._agrees_with(function):
                    return self.graph
                notice(FALLBACK.format(what=what))
        return None

    def _work(self) -> None:
        """Leave the function's value in `output`."""
        with self.ranks.autocast():
            self.output = self.function(*self.inputs)

    def _agrees_with(self, function: Callable[..., Tensor]) -> bool:
        """Tell whether replays give the plain function's rows but for rounding, every time."""
        inputs = [part.clone() for part in self.inputs]
        for shift in range(NUM_CHECKS):
            # A wrong program may err for some batches only, so each round has its images in other rows.
            shifted = [part.roll(shift, 0) for part in inputs]
            with self.ranks.autocast():
                expected = function(*shifted)
            if not is_close(self(*shifted), expected):
                return False
        return True

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the function's value, which the next call overwrites."""
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        work = self._work if self.graph is None else self.graph.replay
        work()
        return self.output


def is_close(rows: Tensor, expected: Tensor) -> bool:
    """Tell whether each row is the expected one within the tolerance."""
    error, size = (value.float().norm(dim=-1) for value in (rows - expected, expected))
    return bool((error <= TOLERANCE * size).all())


def repeats(work: Callable[[], Tensor]) -> bool:
    """Tell whether work on the same state gives the same result every time but for rounding."""
    first = work()
    return all(is_close(work(), first) for _ in range(NUM_CHECKS - 1))


def try_record(work: Callable[[], None], what: str, notice: Notice) -> torch.cuda.CUDAGraph | None:
    """Record some work, or say why that is impossible."""
    try:
        return record(work)
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[0]
        notice(f"the {what} could not be recorded ({reason}), so it runs in another way: slower, but right")
        return None


def record(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Do some work a few times on a side stream, which compiles it, and record it as a graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(NUM_WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph
