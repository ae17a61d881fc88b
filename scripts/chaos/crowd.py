"""Real servers, several who ask and several who teach at once, and kills of teachers and servers among them."""

import http.client
import json
import os
import random
import re
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

from chaos.folders import BrokenPromise
from chaos.forks import SECONDS_TO_END, clare, command, start, wait
from chaos.worlds import LESSONS

NUM_ASKING = 3
LEAST_ANSWERS = 10
"""So many answers are waited for, however busy the machine is."""
MOST_CHANGES = 3
ROUNDING = 1e-5
FORM = {"content-type": "multipart/form-data; boundary=xyz"}


class Crowd:
    """A server of a model that other processes teach, take back and ask."""

    def __init__(self, world: Path, folder: Path) -> None:
        """Take what trials are copied from."""
        self.world, self.folder = world, folder / "here"
        self.pictures = [path.read_bytes() for path in sorted((world / "pictures").rglob("0.png"))]

    def trial(self, draw: random.Random, number: int) -> tuple[str, int]:
        """Serve, ask and teach at once; kill a teacher or the server, and look at the model that is left."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        shutil.copytree(self.world / "model", self.folder / "model")
        server, port = self._serve()
        asking = self.folder / "asking"
        asking.mkdir()
        try:
            client = start(self.folder, lambda: ask(port, self.pictures, asking), asking)
            how = self._change(draw, port)
            (asking / "stop").touch()
            wait(client)
        finally:
            is_over = os.waitpid(server, os.WNOHANG)[0]
            if not is_over:
                os.kill(server, signal.SIGKILL if draw.random() < 0.5 else signal.SIGTERM)
                wait(server)
        said = (self.folder / "logs" / "errors").read_text()
        if is_over or "Traceback" in said:
            raise BrokenPromise(f"the server ended or failed: {said}")
        problems = (asking / "problems").read_text()
        if problems:
            raise BrokenPromise(f"while the model was changed ({how}): {problems}; the log: {said}")
        shown = clare(self.folder, "inspect", "model")
        if shown.code != 0:
            raise BrokenPromise(f"after {how} the model cannot be read: {shown}")
        return how, 1

    def _serve(self) -> tuple[int, int]:
        """Start a server at a free port."""
        logs = self.folder / "logs"
        logs.mkdir()

        words = ("serve", "model", "--port", "0", "--device", "cpu")
        pid = start(self.folder, lambda: command(*words), logs)
        ends = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < ends:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", (logs / "out").read_text())
            if found:
                return pid, int(found.group(1))
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
            time.sleep(0.05)
        raise BrokenPromise(f"the server did not start: {(logs / 'errors').read_text()}")

    def _change(self, draw: random.Random, port: int) -> str:
        """Change the model from outside, several times; some who do are killed."""
        done = []
        for _ in range(draw.randint(1, MOST_CHANGES)):
            words = draw.choice(
                (
                    ("learn", "model", str(self.world / "pictures" / "third"), "--quick"),
                    ("undo", "model"),
                    ("rename", "model", "cat", "tiger"),
                    ("remove", "model", "dog"),
                )
            )
            kill = draw.choice((None, None, draw.uniform(0.0, 0.5)))
            two = draw.random() < 0.3
            if two:
                logs = self.folder / "other"
                logs.mkdir(exist_ok=True)
                other = start(self.folder, lambda: command("undo", "model"), logs)
            ended = clare(self.folder, *words, kill_after=kill)
            if two and wait(other) not in (0, 2):
                raise BrokenPromise(f"a second writer ended with {(logs / 'errors').read_text()}")
            if not (ended.code == 0 or ended.was_killed or ended.is_refusal):
                raise BrokenPromise(f"clare {' '.join(words)} beside a server ended with {ended}")
            done.append(words[0])
        if draw.random() < 0.3:
            done.append(self._teach_by_http(port))
        return ", ".join(sorted(set(done)))

    def _teach_by_http(self, port: int) -> str:
        """Send a lesson, and kill the process that learns it or let it end."""
        body = b"".join(
            _part("images", "a.png", picture) + _part("labels", "", LESSONS["third"][place % 2].encode() + b" new")
            for place, picture in enumerate(self.pictures)
        )
        status, answer = request(port, "POST", "/learn?mode=quick", body + b"--xyz--\r\n", FORM)
        if status != 202:
            raise BrokenPromise(f"a lesson was answered {status} {answer}")
        ends = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < ends:
            _, shown = request(port, "GET", f"/jobs/{answer['job']}")
            if shown["state"] in ("done", "failed"):
                if "Traceback" in str(shown["error"]):
                    raise BrokenPromise(f"a lesson failed: {shown}")
                return "POST /learn"
            time.sleep(0.2)
        raise BrokenPromise("a lesson did not end")


def ask(port: int, pictures: list[bytes], folder: Path) -> None:
    """Ask the same pictures again and again, several at once; answers of one version must agree."""
    answers: dict[tuple[int, int], Any] = {}
    problems: list[str] = []

    def one(number: int) -> None:
        draw, count = random.Random(number), 0
        while not problems and (count < LEAST_ANSWERS or not (folder / "stop").exists()):
            count += 1
            place = draw.randrange(len(pictures))
            body = _part("images", "a.png", pictures[place]) + b"--xyz--\r\n"
            try:
                status, answer = request(port, "POST", "/predict", body, FORM)
            except (OSError, ValueError, http.client.HTTPException) as error:
                problems.append(repr(error))
                return
            if status == 409 and "knows no classes" in answer["detail"]:
                # All lessons may have been taken back by now.
                continue
            if status != 200:
                problems.append(f"{status} {answer}")
            elif not agree(answers.setdefault((place, answer["version"]), answer), answer):
                problems.append(f"{answer} in place of {answers[place, answer['version']]}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(NUM_ASKING)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (folder / "problems").write_text("\n".join(problems))


def agree(first: Any, second: Any) -> bool:
    """Tell whether two answers are one but for the rounding of sums over batches of another size."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(agree(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(agree, first, second))
    return abs(first - second) <= ROUNDING if isinstance(first, float) else bool(first == second)


def _part(field: str, filename: str, content: bytes) -> bytes:
    """Return one part of a form."""
    head = f'--xyz\r\nContent-Disposition: form-data; name="{field}"; filename="{filename}"\r\n\r\n'
    return head.encode() + content + b"\r\n"


def request(port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Any:
    """Return status and JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_TO_END)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
