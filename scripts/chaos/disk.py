"""A disk that is full: a command ends in one sentence and breaks nothing, and goes on when there is room again."""

import ctypes
import os
import random
import resource
import shutil
from pathlib import Path

from chaos.folders import BrokenPromise, difference, told
from chaos.forks import Ended
from chaos.kills import Target, measure, prepare, targets

PAGE = 4096
LEAST_ROOM = 1 << 15
ROOM = 1 << 26


class FullDisk:
    """A small file system in memory where that may be mounted, or else a limit on the size of files."""

    def __init__(self, world: Path, folder: Path) -> None:
        """See what the commands do where there is room."""
        self.world, self.folder = world, folder
        chosen = ("train clare", "learn", "learn --quick", "learn, new model", "undo", "compare")
        self.targets = [target for target in targets(world) if target.name in chosen]
        self.added: dict[str, int] = {}
        for target in self.targets:
            measure(target, world, folder / "here")
            before = size(world / target.starts_from) if target.starts_from else 0
            self.added[target.name] = size(folder / "here") - before
        shutil.rmtree(folder / "here")

    def trial(self, draw: random.Random, number: int) -> tuple[str, int]:
        """Give a command too little room, then enough."""
        target = self.targets[number % len(self.targets)]
        mount = self.folder / "mount"
        mount.mkdir(exist_ok=True)
        if not _mounted(mount, ROOM):
            return self._limited(target, draw)
        try:
            here = prepare(target, self.world, mount / "here")
            room = draw.randrange(PAGE, max(self.added[target.name], LEAST_ROOM))
            _mounted(mount, size(here) + room, again=True)
            ended = target.act(here)
            _mounted(mount, ROOM, again=True)
            self._check(target, here, ended, "on a full disk")
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(mount), 2)
        return target.name + (", refused" if ended.code else ", fits"), 1

    def _limited(self, target: Target, draw: random.Random) -> tuple[str, int]:
        """Do the same with files that must not grow beyond a size."""
        here = prepare(target, self.world, self.folder / "here")
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (draw.randrange(200, 20_000), most))
        try:
            ended = target.act(here)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        self._check(target, here, ended, "with a limit on files")
        return target.name + (", refused, by limit" if ended.code else ", fits, by limit"), 1

    def _check(self, target: Target, here: Path, ended: Ended, how: str) -> None:
        """Make sure that a command was refused in a sentence, and ends where there is room."""
        # Several runs in one command end with 1: those that failed are named, and the others are made.
        is_refusal = ended.is_refusal or (
            target.name == "compare" and ended.code == 1 and "Traceback" not in ended.errors
        )
        if ended.code and not is_refusal:
            raise BrokenPromise(f"{target.name} {how} ended with {ended}")
        if ended.code:
            again = target.act(here)
            if again.code:
                raise BrokenPromise(f"{target.name} {how}: where there was room again it ended with {again}")
        if (found := told(here / target.folder)) != target.after:
            raise BrokenPromise(f"{target.name} {how}: {difference(target.after, found)}")


def size(folder: Path) -> int:
    """Return the bytes that the files of a folder take, in whole pages."""
    return sum(-(-path.stat().st_size // PAGE) * PAGE for path in folder.rglob("*") if path.is_file())


def _mounted(folder: Path, num_bytes: int, again: bool = False) -> bool:
    """Mount a file system in memory of this size, or give one another size; tell whether that is allowed."""
    flags = 32 if again else 0
    options = f"size={num_bytes}".encode()
    return ctypes.CDLL(None, use_errno=True).mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options) == 0
