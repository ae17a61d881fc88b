"""Folders that are damaged or forged: what they say is unchanged or refused in one sentence, and never a traceback."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.folders import BrokenPromise
from chaos.forks import Ended, clare

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**400, 1.5, float("nan"), float("inf"), "", "\x1b]0;x\x07", "\u202e", "../..",
    "x" * 5000, [], {}, [[]], {"a": {}}, ["\ud800"],
)  # fmt: skip
Damage = Callable[[random.Random, Path], str]


def flip(draw: random.Random, path: Path) -> str:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    if not data:
        return append(draw, path)
    place, change = draw.randrange(len(data)), draw.randrange(1, 256)
    data[place] ^= change
    path.write_bytes(data)
    return f"byte {place} xor {change}"


def cut(draw: random.Random, path: Path) -> str:
    """Lose the end."""
    data = path.read_bytes()
    length = draw.randrange(len(data)) if data else 0
    path.write_bytes(data[:length])
    return f"cut to {length} bytes"


def lose(draw: random.Random, path: Path) -> str:
    """Lose the whole file."""
    path.unlink()
    return "gone"


def append(draw: random.Random, path: Path) -> str:
    """Add bytes to the end."""
    more = draw.randbytes(draw.randrange(1, 40))
    path.write_bytes(path.read_bytes() + more)
    return f"{more!r} at the end"


def splice(draw: random.Random, path: Path) -> str:
    """Copy a part of a file over another one."""
    data = bytearray(path.read_bytes())
    if len(data) < 2:
        return append(draw, path)
    start, place, length = draw.randrange(len(data)), draw.randrange(len(data)), draw.randrange(1, 200)
    part = data[start : start + length]
    data[place : place + len(part)] = part
    path.write_bytes(data)
    return f"{len(part)} bytes from {start} copied to {place}"


def replace(draw: random.Random, path: Path) -> str:
    """Put something else in the place of the content."""
    content = draw.choice(
        [b"", b"[" * 100_000, b"\xff\xfe", b"[]", b"{}", b"null", b"7", b'{"a": ' * 50_000, b"\0" * 99]
    )
    path.write_bytes(content)
    return f"{content[:8]!r} and so on"


def forge(draw: random.Random, path: Path) -> str:
    """Change one value of JSON and seal it again, as somebody would who wants to be believed."""
    from clare.sealed import SEAL, seal

    if path.suffix not in (".json", ".jsonl"):
        return flip(draw, path)
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = draw.randrange(len(lines))
    values = json.loads(lines[number])
    places = list(_places(values))
    parent, key = draw.choice(places)
    value = draw.choice(ODD)
    parent[key] = value
    if isinstance(values, dict) and SEAL in values:
        values = seal(values)
    lines[number] = json.dumps(values)
    path.write_text("\n".join(lines) + "\n")
    return f"line {number}: {key!r} is {str(value)[:30]!r}"


def _places(value: Any) -> Any:
    """Yield every place of a value of JSON where another one could stand."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


DAMAGES: tuple[Damage, ...] = (flip, flip, flip, cut, lose, append, splice, replace, forge, forge)


class Mutations:
    """A run and a model of which copies are damaged, and what they say when they are whole."""

    def __init__(self, world: Path, folder: Path) -> None:
        """Ask the whole folders."""
        self.world, self.folder = world, folder
        again = ("train", str(world / "tiny.toml"), "--method", "finetune", "--out", "run")
        self.questions = {
            "run": (("show", "run"), again),
            "model": (("inspect", "model"), ("predict", "model", "picture.png", "--json"), ("undo", "model")),
        }
        self.whole = {kind: [self._ask(kind, words) for words in asked] for kind, asked in self.questions.items()}
        for kind, answers in self.whole.items():
            if any(answer.code for answer in answers):
                raise BrokenPromise(f"the whole {kind} cannot be read: {answers}")

    def trial(self, draw: random.Random, number: int) -> tuple[str, int]:
        """Damage a copy and ask it; return how, and that it was one."""
        kind = draw.choice(["run", "model", "model"])
        self._copy(kind)
        files = sorted(path for path in (self.folder / kind).rglob("*") if path.is_file())
        path, damage = draw.choice(files), draw.choice(DAMAGES)
        what = f"{path.relative_to(self.folder)}: {damage(draw, path)}"
        place = draw.randrange(len(self.questions[kind]))
        words, usual = self.questions[kind][place], self.whole[kind][place]
        ended = clare(self.folder, *words)
        is_same = ended.code == 0 and said(ended) == said(usual)
        # Whoever forges digests decides what a folder says; that is promised only not to fall over.
        is_allowed = is_same or ended.is_refusal or (damage is forge and ended.code == 0)
        if not is_allowed or "Traceback" in ended.out + ended.errors or "\x1b" in ended.out + ended.errors:
            raise BrokenPromise(f"{what}: clare {' '.join(words)} ended with {ended}")
        return f"{kind}, {damage.__name__}", 1

    def _copy(self, kind: str) -> None:
        """Make a fresh copy of a whole folder."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        shutil.copytree(self.world / kind, self.folder / kind)
        shutil.copy(self.world / "pictures" / "first" / "cat" / "0.png", self.folder / "picture.png")

    def _ask(self, kind: str, words: tuple[str, ...]) -> Ended:
        """Ask a whole copy."""
        self._copy(kind)
        return clare(self.folder, *words)


def said(ended: Ended) -> str:
    """Return what an answer says but the size of the folder, which leftovers change."""
    return "\n".join(line for line in ended.out.splitlines() if not line.startswith("size on disk"))
