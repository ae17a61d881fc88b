"""The principle by itself: each task gets scalars of a model's parameters that no other task has, and keeps them.

    pool = Allocator(model.adapter.named_parameters())
    for task in tasks:
        with pool.probe(SGD(pool.parameters, 0.1), share=0.05, penalty=1e-4):
            ...  # train as ever for a few epochs: Stage 1, of which only the choice of coordinates remains
        with pool.train(SGD(pool.parameters, 0.1)):
            ...  # train as ever: Stage 2 moves the chosen coordinates alone, and then they are claimed

All parameters together are one pool of N coordinates; a mask is a boolean vector over it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clare.sparse.ledger import Ledger
from clare.sparse.select import budget_of, select_top
from clare.sparse.update import MergeForm, held, merged

Named = Mapping[str, nn.Parameter] | Iterable[tuple[str, nn.Parameter]]


class Allocator:
    """One pool of coordinates over chosen parameters of any module, and the account of who has claimed which."""

    def __init__(self, parameters: Named, initial: Tensor | None = None, ledger: Ledger | None = None) -> None:
        """Make a pool of these parameters; initial values and an account that somebody else saves may be given."""
        self._named = dict(parameters)
        _check_pool(self._named)
        self._shapes = {name: parameter.shape for name, parameter in self._named.items()}
        self.initial = self.values() if initial is None else initial
        self.ledger = Ledger(self.num_coordinates).to(self.initial.device) if ledger is None else ledger
        self._chosen: Tensor | None = None

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the pool, as an optimiser takes them."""
        return list(self._named.values())

    @property
    def num_coordinates(self) -> int:
        """All coordinates, free or claimed."""
        return sum(shape.numel() for shape in self._shapes.values())

    @property
    def num_free(self) -> int:
        """Coordinates that no task has claimed."""
        return self.ledger.num_free

    @property
    def num_tasks(self) -> int:
        """Tasks that have claimed coordinates."""
        return len(self.ledger.lengths)

    def values(self) -> Tensor:
        """Return a copy of all coordinates, shape (N,)."""
        self._check_shapes()
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._named.values()]).clone()

    @torch.no_grad()
    def write(self, values: Tensor) -> None:
        """Put values into the parameters."""
        for parameter, part in zip(self._named.values(), self.split(values), strict=True):
            parameter.copy_(part)

    def split(self, flat: Tensor) -> list[Tensor]:
        """Return a vector over the pool in the shapes of the parameters."""
        self._check_shapes()
        sizes = [shape.numel() for shape in self._shapes.values()]
        return [part.view(shape) for part, shape in zip(torch.split(flat, sizes), self._shapes.values(), strict=True)]

    @contextmanager
    def probe(self, optimizer: Optimizer, share: float, penalty: float = 0.0) -> Iterator[None]:
        """Train free coordinates, pulled back by an L1 penalty; afterwards those that moved most are chosen."""
        if self._chosen is not None:
            raise ValueError("coordinates were chosen already and are not claimed yet; use `train` before `probe`")
        if not 0 < share <= 1:
            raise ValueError(
                f"the share is {share}; give the part of the free coordinates to claim, over 0 and up to 1"
            )
        if penalty < 0:
            raise ValueError(f"the penalty is {penalty}; give zero or a positive weight")
        start, free = self.values(), self.ledger.free.clone()
        try:
            with self.only(optimizer, free, penalty):
                yield
            scores = (self.values() - start).abs()
        finally:
            self.write(start)
        self._chosen = self.choose(scores, free, share)

    def choose(self, scores: Tensor, candidates: Tensor, share: float, unmoved: bool = False) -> Tensor:
        """Mark the candidates with the largest scores, as many as this share of all candidates."""
        return select_top(scores, candidates, budget_of(int(candidates.sum()), share), unmoved)

    @contextmanager
    def train(self, optimizer: Optimizer) -> Iterator[None]:
        """Train the chosen coordinates alone, which the task claims at the end; an exception leaves all as it was."""
        if self._chosen is None:
            raise ValueError("no coordinates are chosen; use `probe` before `train`, once for every task")
        start, chosen = self.values(), self._chosen
        try:
            with self.only(optimizer, chosen):
                yield
        except BaseException:
            self.write(start)
            raise
        self._chosen = None
        self.claim(chosen)

    @contextmanager
    def only(self, optimizer: Optimizer, mask: Tensor, penalty: float = 0.0) -> Iterator[None]:
        """Let an optimiser move these coordinates alone; all others keep every bit, whatever its moments say."""
        _check_optimizer(optimizer, self.parameters)
        masks, anchors = self.split(mask), self.split(self.values())
        before: list[Tensor] = []
        found = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
        groups = [found[id(parameter)] for parameter in self.parameters]

        def keep(*_: Any) -> None:
            before[:] = [parameter.detach().clone() for parameter in self.parameters]

        @torch.no_grad()
        def put_back(*_: Any) -> None:
            for parameter, old, open_, anchor, group in zip(
                self.parameters, before, masks, anchors, groups, strict=True
            ):
                # An L1 penalty pulls at the group's present rate, and momentum repeats each pull.
                threshold = float(group["lr"]) * penalty / (1 - float(group.get("momentum", 0.0)))
                new = held(parameter.data, anchor, threshold) if penalty else parameter.data
                parameter.copy_(torch.where(open_, new, old))

        hooks = [optimizer.register_step_pre_hook(keep), optimizer.register_step_post_hook(put_back)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def claim(
        self, chosen: Tensor, shared: Tensor | None = None, form: MergeForm = "state", overlap: bool = False
    ) -> None:
        """Give the chosen coordinates to the next task as they are now; `shared` is what holds outside of them."""
        if chosen.dtype != torch.bool or chosen.shape != self.ledger.free.shape:
            raise ValueError(
                f"a claim is a mask of {self.num_coordinates} booleans, not {tuple(chosen.shape)} of {chosen.dtype}"
            )
        if not overlap and (twice := int((chosen & ~self.ledger.free).sum())):
            raise ValueError(f"{twice} of the coordinates are claimed already; choose among `ledger.free`")
        if shared is not None:
            self.write(merged(shared, self.values(), chosen, self.initial, form))
        self.ledger.claim(chosen, self.values())

    @torch.no_grad()
    def undo(self) -> None:
        """Take back the last claim: its coordinates are free again and have the values from before any task."""
        if not self.num_tasks:
            raise ValueError("no task has claimed anything, so there is nothing to take back")
        values = self.values()
        coordinates = self.ledger.release()
        values[coordinates] = self.initial[coordinates]
        self.write(values)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that a later process needs, the values of the parameters included."""
        lengths = torch.tensor(self.ledger.lengths, dtype=torch.int64)
        claims = {f"ledger.{name}": tensor for name, tensor in self.ledger.state_dict().items()}
        return {"values": self.values(), "initial": self.initial.clone(), "lengths": lengths, **claims}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a saved state; one of another pool is refused and changes nothing."""
        needed = self.state_dict()
        if missing := sorted(needed.keys() - state.keys()):
            raise ValueError(f"the saved state lacks {', '.join(missing)}; give what `state_dict` returned")
        for name in ("values", "initial", "ledger.free"):
            if state[name].shape != needed[name].shape:
                raise ValueError(
                    f"the saved state is of a pool with {state[name].numel()} coordinates, this one has "
                    f"{self.num_coordinates}; make the pool of the same parameters"
                )
        lengths = [int(length) for length in state["lengths"]]
        if not sum(lengths) == len(state["ledger.coordinates"]) == len(state["ledger.values"]):
            raise ValueError("the saved state contradicts itself: its claims have other lengths than it says")
        self.write(state["values"].to(self.initial))
        self.initial.copy_(state["initial"])
        self.ledger.resize(lengths)
        self.ledger.load_state_dict({name: state[f"ledger.{name}"] for name in self.ledger.state_dict()})
        self._chosen = None

    def _check_shapes(self) -> None:
        """Refuse parameters that are no longer what the pool was made of."""
        for name, parameter in self._named.items():
            if parameter.shape != self._shapes[name]:
                raise ValueError(
                    f"the parameter {name} had the shape {tuple(self._shapes[name])} when the pool was made and has "
                    f"{tuple(parameter.shape)} now; make a new pool"
                )


def _check_pool(named: Mapping[str, nn.Parameter]) -> None:
    """Refuse what cannot be one pool."""
    if not named:
        raise ValueError("the pool has no parameters; give some, such as module.named_parameters()")
    seen: dict[int, str] = {}
    for name, parameter in named.items():
        if not parameter.is_floating_point():
            raise ValueError(f"the parameter {name} has no floating-point values; leave it out of the pool")
        if (first := seen.setdefault(parameter.data_ptr(), name)) != name and parameter.numel():
            raise ValueError(f"the parameters {first} and {name} share their values; give one of them")
    if len({(parameter.device, parameter.dtype) for parameter in named.values()}) > 1:
        raise ValueError("the parameters are on several devices or of several precisions; make a pool for each")


def _check_optimizer(optimizer: Optimizer, parameters: list[nn.Parameter]) -> None:
    """Refuse an optimiser that does not train these parameters, or that remembers steps of an earlier stage."""
    known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not {id(parameter) for parameter in parameters} <= known:
        raise ValueError(
            "the optimiser has other parameters than the pool; make it of `pool.parameters`, and of others"
        )
    if any(parameter in optimizer.state for parameter in parameters):
        raise ValueError(
            "the optimiser has taken steps before, which its moments remember; make a new one for each stage"
        )
