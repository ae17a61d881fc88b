"""The one driver: it runs the steps that a method, or its head alone, asks for, or puts back what they left."""

import time
from collections.abc import Callable, Generator
from functools import partial

import torch

from clare.data.store import LabelledImages
from clare.engine.context import Context
from clare.engine.journal import Journal
from clare.engine.passes import run_sweep
from clare.engine.replay import take_pictures
from clare.engine.train import PhaseRun, Place, load_parameters
from clare.errors import ModelError
from clare.methods.base import Method
from clare.seeds import derive_seed
from clare.steps import Collect, Learning, Notice, Pass, Phase, Result, Solve, Step, Take, next_step

Perform = Callable[[Step, Place], Result]
"""Does a step's work and returns what the generator is sent for it."""


class Driver:
    """Runs steps over the images of one task, with the listener, the ranks and the journal of a run."""

    def __init__(
        self, context: Context, method: Method, images: LabelledImages, task: int, journal: Journal | None = None
    ) -> None:
        self.context, self.method, self.images, self.task = context, method, images, task
        self.journal = journal or Journal()

    def run(self, steps: Learning, perform: Perform | None = None) -> int:
        """Advance steps to their end, and return how many there were; another `perform` may do or watch the work."""
        if not isinstance(steps, Generator):
            raise ModelError(f"the steps of {self.method.name} are {steps!r}; write `learn` as a generator that yields")
        device, work = self.context.ranks.device, perform or self.perform
        index, result = 0, None
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            while True:
                # A method that draws from the global random state between steps draws the same when it is replayed.
                torch.manual_seed(derive_seed(self.context.seed, self.task, index, "between"))
                try:
                    step = next_step(steps, result)
                except StopIteration:
                    return index
                result = work(step, Place(self.task, index))
                index += 1

    def perform(self, step: Step, place: Place) -> Result:
        """Run one step, or put back what it left when it is already finished."""
        done, ranks = self.journal.finished(place.step), self.context.ranks
        match step:
            case Notice():
                if done is None:
                    self.context.listener.notice(step.text)
                    self.journal.notice(step.text)
                    self.journal.finish(place.step, {})
                return {}
            case Phase():
                if done is None:
                    done = self._train(step, place)
                else:
                    load_parameters(step, done)
                return {"remarks": done["remarks"][:, :-1].to(ranks.device)} if step.remarks else {}
            case Pass() | Collect() | Take() | Solve():
                if done is None:
                    self.context.listener.step(step.name, 1)
                    if isinstance(step, Solve):
                        solved = step.function()
                        # Ranks may round differently; what the first one found counts.
                        done = {name: ranks.broadcast_(solved[name].contiguous()) for name in sorted(solved)}
                    elif isinstance(step, Take):
                        done = take_pictures(step, self.method, self.images)
                    else:
                        done = run_sweep(self.context, self.method, step, self.images, place)
                    self.journal.finish(place.step, done)
                return {name: tensor.to(ranks.device) for name, tensor in done.items()}
        raise ModelError(
            f"{self.method.name} asks for {step!r}, which is no step; yield a Phase, Pass, Collect, Take, Solve or "
            "Notice of clare.steps"
        )

    def _train(self, phase: Phase, place: Place) -> Result:
        """Run a phase from its last saved epoch, and return what it left."""
        self.context.listener.step(phase.name, phase.epochs)
        run = PhaseRun(self.context, self.method, phase, self.images, place)
        start_epoch, saved = self.journal.epoch(place.step) or (0, None)
        if saved is not None:
            run.restore(saved)
        started = time.perf_counter()
        losses = run.run(start_epoch, partial(self.journal.save_epoch, place.step))
        self.journal.phase_done(phase, losses, time.perf_counter() - started)
        left = run.left()
        self.journal.finish(place.step, left)
        return left
