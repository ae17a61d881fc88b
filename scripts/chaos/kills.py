"""Kills at every write and at any moment: what was cut off ends, begun again, as if nothing had happened."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.folders import BrokenPromise, difference, told
from chaos.forks import Ended, clare, in_process, moments
from chaos.worlds import LESSONS

MOST_KILLS = 6
"""How often one command is killed, begun again each time, before it may end."""
FAST = ("--set", "stream.num_classes=4", "--set", "method.epochs=1")

Act = Callable[..., Ended]
"""Does it in a folder, and may be killed: act(folder, die_at=..., torn=..., kill_after=...)."""


@dataclass
class Target:
    """A command that is killed: how it is given, what it starts from, and which states it may leave."""

    name: str
    act: Act
    folder: str
    starts_from: str | None = None
    """A folder of the world of which a copy is there before."""
    is_change: bool = False
    """Whether it changes a model, so that a kill leaves the old one or the new one."""
    usual: Ended | None = None
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    weight: int = 1
    """How often it is killed in a round of all."""
    turn: int | None = None
    """How often it was killed before, where that counts its writes."""


def targets(world: Path) -> list[Target]:
    """Return all commands that are killed."""
    preset = str(world / "tiny.toml")

    def given(*words: str) -> Act:
        return lambda folder, **kill: clare(folder, *words, **kill)

    third = str(world / "pictures" / "third")
    new = ("--backbone", str(world / "tiny.backbone.toml"))
    both = (str(world / "model"), str(world / "other"))
    runs = [
        Target(f"train {name}", given("train", preset, "--method", name, "--out", "run", *FAST), "run", weight=weight)
        for name, weight in (("clare", 4), ("finetune", 1), ("ranpac", 1))
    ]
    return [
        *runs,
        Target("learn", given("learn", "model", third), "model", "model", is_change=True, weight=5),
        Target("learn --quick", given("learn", "model", third, "--quick"), "model", "model", is_change=True, weight=5),
        Target("learn, new model", given("learn", "model", third, *new), "model", is_change=True, weight=6),
        Target("undo", given("undo", "model"), "model", "model", is_change=True, weight=4),
        Target("rename", given("rename", "model", "cat", "tiger"), "model", "model", is_change=True, weight=4),
        Target("merge", given("merge", *both, "--out", "model"), "model", is_change=True, weight=2),
        Target("serve's lesson", _lesson(world), "model", "model", is_change=True, weight=4),
        Target("compare", given("compare", preset, "--methods", "simplecil,finetune", "--out", "all", *FAST), "all"),
        Target(
            "sweep",
            given("sweep", preset, "--method", "simplecil", "--set", "method.head.scale=10,20", "--out", "all",
                  "--jobs", "1", "--set", "stream.num_classes=4"),
            "all",
        ),
    ]  # fmt: skip


def _lesson(world: Path) -> Act:
    """Return what the process does that a server starts for a lesson."""

    def lesson() -> None:
        import clare.serve.teach as child
        from clare.serve.limits import Limits

        # Its input closes with its server; here there is none, and its decoder is a process of its own.
        child.end_with_input = lambda: None  # type: ignore[attr-defined]
        job = Path("job")
        job.mkdir(exist_ok=True)
        images = []
        for name in LESSONS["third"]:
            for path in sorted((world / "pictures" / "third" / name).iterdir()):
                copy = job / f"{name}-{path.name}"
                shutil.copy(path, copy)
                images.append(child.StoredImage(name, path.name, copy))
        child.write_examples(job, images, Limits())
        raise SystemExit(child.main(["model", "cpu", "", "job", "quick"]))

    return lambda folder, **kill: in_process(folder, lesson, **kill)


def prepare(target: Target, world: Path, folder: Path) -> Path:
    """Make the folder in which a command is given."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    if target.starts_from is not None:
        shutil.copytree(world / target.starts_from, folder / target.folder)
    return folder


def measure(target: Target, world: Path, folder: Path) -> None:
    """See what a command does when nobody kills it, twice, since only what does not vary can be compared."""
    outcomes = []
    for _ in range(2):
        prepare(target, world, folder)
        target.before = told(folder / target.folder) if target.starts_from else {}
        target.usual = target.act(folder)
        if target.usual.code != 0:
            raise BrokenPromise(f"{target.name} does not work at all: {target.usual}")
        outcomes.append(told(folder / target.folder))
    if outcomes[0] != outcomes[1]:
        raise BrokenPromise(f"{target.name} does not repeat itself: {difference(*outcomes)}")
    target.after = outcomes[0]


class Kills:
    """All commands in turn, each killed at every write first."""

    def __init__(self, world: Path, folder: Path) -> None:
        """See what they do when nobody kills them."""
        self.world, self.folder = world, folder / "here"
        self.targets = targets(world)
        for target in self.targets:
            measure(target, world, self.folder)

    def trial(self, draw: random.Random, number: int) -> tuple[str, int]:
        """Kill the next command; return which it was, and how often it died."""
        round_of_all = [target for target in self.targets for _ in range(target.weight)]
        target = round_of_all[number % len(round_of_all)]
        before = number // len(round_of_all) * target.weight + number % len(round_of_all) - round_of_all.index(target)
        # Of commands with hundreds of writes, those at which they die are drawn.
        target.turn = before if target.is_change else None
        return target.name, kill_once(target, draw, self.world, self.folder)


def kill_once(target: Target, draw: random.Random, world: Path, folder: Path) -> int:
    """Kill a command, begin it again until it ends, and compare; return how often it died."""
    assert target.usual is not None
    prepare(target, world, folder)
    how = moments(draw, target.usual, target.turn)
    said = f"{target.name} killed at {how}"
    num_kills = 0
    while True:
        ended = target.act(folder, **how)  # type: ignore[arg-type]
        num_kills += ended.was_killed
        if not ended.was_killed and ended.code != 0:
            raise BrokenPromise(f"{said}: begun again it ended with {ended}")
        if target.is_change and is_new(target, folder, said):
            break
        if not ended.was_killed:
            break
        again = num_kills < MOST_KILLS and draw.random() < 0.75
        how = moments(draw, target.usual) if again else {}
    found = told(folder / target.folder)
    if found != target.after:
        raise BrokenPromise(f"{said}: {difference(target.after, found)}")
    return num_kills


def is_new(target: Target, folder: Path, said: str) -> bool:
    """Tell whether the model is the new one; refuse anything that is neither that nor the old one."""
    manifest = folder / target.folder / "model.json"
    if not manifest.exists():
        if target.before:
            raise BrokenPromise(f"{said}: the model is gone")
        return False
    shown = clare(folder, "inspect", target.folder)
    if shown.code != 0:
        raise BrokenPromise(f"{said}: the model cannot be read any more: {shown}")
    now = _manifest(told(folder / target.folder))
    if now == _manifest(target.after):
        # What the next change clears away may still be there.
        _forget_leftovers(target, folder / target.folder)
        return True
    is_empty = not target.before and now["classes"] == []
    if now != _manifest(target.before) and not is_empty:
        raise BrokenPromise(f"{said}: the model is neither the old one nor the new one")
    return False


def _manifest(files: dict[str, Any]) -> Any:
    """Return what model.json says."""
    return files.get("model.json")


def _forget_leftovers(target: Target, folder: Path) -> None:
    """Remove files that the manifest does not name, as the next commit does."""
    text = (folder / "model.json").read_text()
    for path in folder.iterdir():
        if path.name != "model.json" and path.name not in text:
            path.unlink()
