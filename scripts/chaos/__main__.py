"""Run the attack: `make chaos`, or `PYTHONPATH=scripts python -m chaos --count 100 --seed 7`.

Every trial follows from the seed, its part and its number, so that a broken promise is found again, and a campaign that
was stopped goes on where it was.
"""

import argparse
import json
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chaos.bodies import Bodies
from chaos.crowd import Crowd
from chaos.disk import FullDisk
from chaos.folders import BrokenPromise
from chaos.forks import import_all
from chaos.kills import Kills
from chaos.mutations import Mutations
from chaos.worlds import build

PROMISE = "end bit-identical, or one sentence and exit 2; never a traceback, a 5xx or other numbers without a word"
FULL = {"kills": 1000, "folders": 2000, "bodies": 10_000, "crowds": 40, "full disks": 40}
PARTS: dict[str, Callable[[Path, Path], Any]] = {
    "kills": Kills,
    "folders": Mutations,
    "bodies": Bodies,
    "crowds": Crowd,
    "full disks": FullDisk,
}
SECONDS_BETWEEN_LINES = 15.0
OUT = Path("runs/chaos.json")
"""Full campaigns that are kept lie in results/chaos, each named by its day."""


class Campaign:
    """How often each part was tried, kept in a file after every few trials."""

    def __init__(self, out: Path, seed: int) -> None:
        """Go on with what is in the file, if it is of the same seed and source."""
        self.out = out
        self.values: dict[str, Any] = {
            "promise": PROMISE,
            "seed": seed,
            "versions": {name: version(name) for name in ("torch", "numpy", "pillow", "fastapi")},
            "python": platform.python_version(),
            "parts": {},
            "broken": [],
        }
        if out.exists():
            old = json.loads(out.read_text())
            if old["seed"] == seed and not old["broken"]:
                self.values = old

    def run(self, name: str, wanted: int, folder: Path, world: Path) -> None:
        """Try one part until it has been tried as often as wanted."""
        parts, source = self.values["parts"], commit()
        # What was begun with other source is begun anew, what was done with it stays and says so.
        if name not in parts or (parts[name]["count"] < wanted and parts[name]["commit"] != source):
            parts[name] = {"commit": source, "count": 0, "trials": 0, "kinds": {}, "seconds": 0.0}
        kept = parts[name]
        if kept["count"] >= wanted:
            return
        part = PARTS[name](world, folder / name.replace(" ", "-"))
        told = time.monotonic()
        while kept["count"] < wanted:
            started = time.monotonic()
            draw = random.Random(f"{self.values['seed']} {name} {kept['trials']}")
            try:
                kind, count = part.trial(draw, kept["trials"])
            except Exception as error:
                self._break(name, kept["trials"], error)
                raise
            kept["trials"], kept["count"] = kept["trials"] + 1, kept["count"] + count
            kept["kinds"][kind] = kept["kinds"].get(kind, 0) + count
            kept["seconds"] = kept["seconds"] + time.monotonic() - started
            if time.monotonic() - told > SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                self.save()
                print(f"{name}: {kept['count']} of {wanted}", flush=True)
        if hasattr(part, "close"):
            part.close()
        self.save()
        print(f"{name}: {kept['count']}, broken promises: 0", flush=True)

    def _break(self, name: str, number: int, error: Exception) -> None:
        """Keep what was found."""
        what = str(error) if isinstance(error, BrokenPromise) else "".join(traceback.format_exception(error))
        self.values["broken"].append({"part": name, "trial": number, "what": what})
        self.save()

    def save(self) -> None:
        """Write the file."""
        self.values["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.out.with_name(f".{self.out.name}.tmp")
        temporary.write_text(json.dumps(self.values, indent=2, ensure_ascii=False) + "\n")
        temporary.replace(self.out)


def commit() -> str:
    """Return the commit of the source, with a mark where files differ from it."""
    source = Path(__file__).parents[2]

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", source, *words], capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "HEAD") + (" and changes" if git("status", "--porcelain", "--", "src") else "")


def main() -> int:
    """Run all parts, print counts, and end with 1 at the first broken promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--count", type=float, default=100, help="Percent of a full campaign.")
    parser.add_argument("--parts", default=",".join(PARTS), help="Parts to run, separated by commas.")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    import_all()
    campaign = Campaign(arguments.out, arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="clare-chaos-"))
    try:
        world = build(folder / "world")
        for name in arguments.parts.split(","):
            campaign.run(name, max(1, round(FULL[name] * arguments.count / 100)), folder, world)
    except Exception as error:
        traceback.print_exc() if not isinstance(error, BrokenPromise) else print(f"broken promise: {error}")
        print(f"the folders of this trial are kept in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    counts = {name: part["count"] for name, part in campaign.values["parts"].items()}
    print("; ".join(f"{name}: {count}" for name, count in counts.items()) + "; broken promises: 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
