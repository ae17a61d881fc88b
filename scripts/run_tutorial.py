"""Run every command of docs/tutorial.md and put the real output into the page: python scripts/run_tutorial.py.

The outputs are kept whole in results/tutorial.json; a comment above each command says which lines are shown.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
RECORD = ROOT / "results" / "tutorial.json"
BLOCK = re.compile(r"<!-- lines(?P<slices>[^>]*)-->\n```console\n\$ (?P<command>.*)\n(?P<output>(?:.*\n)*?)```\n")
FILE = re.compile(r'```python title="(?P<name>[^"]+)"\n(?P<text>(?:.*\n)*?)```\n')
CUT = "…"
WIDTH = 100

Step = dict[str, Any]


def commands(page: str) -> list[str]:
    """Return the commands of a page in order."""
    return [match["command"] for match in BLOCK.finditer(page)]


def files(page: str) -> dict[str, str]:
    """Return the files that a page asks the reader to write."""
    return {match["name"]: match["text"] for match in FILE.finditer(page)}


def shown(output: list[str], slices: str) -> list[str]:
    """Return the lines that slices such as `:3 -1:` choose, with a mark where lines were cut."""
    chosen: set[int] = set()
    for part in slices.split():
        start, _, stop = part.partition(":")
        chosen.update(range(len(output))[slice(int(start) if start else None, int(stop) if stop else None)])
    lines = []
    for place in range(len(output)):
        if place in chosen:
            lines.append(output[place])
        elif not lines or lines[-1] != CUT:
            lines.append(CUT)
    return lines


def written(page: str, steps: list[Step]) -> str:
    """Return the page with the outputs of these steps."""
    left = iter(steps)

    def fill(match: re.Match[str]) -> str:
        step = next(left)
        if step["command"] != match["command"]:
            raise SystemExit(f"the record has '{step['command']}' where the page has '{match['command']}'; run again")
        lines = ["$ " + step["command"], *shown(step["output"], match["slices"])]
        return f"<!-- lines{match['slices']}-->\n```console\n" + "\n".join(lines) + "\n```\n"

    return BLOCK.sub(fill, page)


def tidy(text: str) -> list[str]:
    """Return the lines of an output without the blanks around them."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def run(page: str, folder: Path) -> list[Step]:
    """Run all commands of a page in a folder; a server goes on until the last one is done."""
    for name, text in files(page).items():
        (folder / name).write_text(text)
    # Where the shell of the reader has the environment activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    surroundings = {**os.environ, "COLUMNS": str(WIDTH), "PATH": path}
    steps: list[Step] = []
    servers: list[subprocess.Popen[str]] = []
    try:
        for command in commands(page):
            print(f"$ {command}", flush=True)
            serves = command.startswith("clare serve")
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}" if serves else command],
                cwd=folder,
                env=surroundings,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert process.stdout is not None
            if serves:
                servers.append(process)
            output = process.stdout.readline() if serves else process.communicate()[0]
            steps.append({"command": command, "output": tidy(output)})
            if process.poll():
                raise SystemExit(f"'{command}' ended with code {process.returncode}: {output}")
    finally:
        for server in servers:
            server.terminate()
            server.communicate()
    return steps


def environment() -> dict[str, Any]:
    """Return what the outputs depend on."""
    packages = {name: version(name) for name in ("clare", "torch", "timm", "numpy")}
    threads = os.environ.get("OMP_NUM_THREADS")
    return {**packages, "python": platform.python_version(), "cpus": os.cpu_count(), "OMP_NUM_THREADS": threads}


def main() -> None:
    """Run the page's commands and write record and page; with --from-record only the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from-record", action="store_true", help="run nothing, take the outputs of the last time")
    from_record: bool = parser.parse_args().from_record
    page = PAGE.read_text(encoding="utf-8")
    if from_record:
        steps = json.loads(RECORD.read_text(encoding="utf-8"))["steps"]
    else:
        with tempfile.TemporaryDirectory() as folder:
            steps = run(page, Path(folder))
        record = {"command": "python scripts/run_tutorial.py", "environment": environment(), "steps": steps}
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(written(page, steps), encoding="utf-8")


if __name__ == "__main__":
    main()
