"""Damage to the files of a folder: bytes that change, files that end early or go, and JSON that is none or odd."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

ODD = (b"", b"[" * 100_000, b"\xff\xfe", b"[]", b"{}", b"null", b"7", b'{"a": ' * 50_000)


def files_of(folder: Path) -> list[str]:
    """Return the names of all files of a folder, in order."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def flips(folder: Path, number: int, seed: int) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield so many single bytes of each file that become another one, as what was done, the file and its bytes."""
    for name in files_of(folder):
        data, draw = (folder / name).read_bytes(), random.Random(f"{seed} {name}")
        for _ in range(number):
            place, change = draw.randrange(len(data)), draw.randrange(1, 256)
            damaged = bytearray(data)
            damaged[place] ^= change
            yield f"byte {place} of {name} xor {change}", name, bytes(damaged)


def losses(folder: Path) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield each file gone, and cut short at some places, and each file of JSON with something else in it."""
    for name in files_of(folder):
        data = (folder / name).read_bytes()
        yield f"{name} deleted", name, None
        for num_bytes in {0, 1, len(data) // 2, len(data) - 1}:
            yield f"{name} cut to {num_bytes} bytes", name, data[:num_bytes]
        if name.endswith((".json", ".jsonl")):
            for content in ODD:
                yield f"{name} is {content[:10]!r}", name, content


def copy_with(folder: Path, copy: Path, name: str, data: bytes | None) -> Path:
    """Make a copy of a folder in which one file is another one, or gone."""
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(folder, copy)
    if data is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(data)
    return copy
