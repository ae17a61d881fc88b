"""A server with canned answers for the page, which remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = resources.files("clare.serve").joinpath("page")
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
TAUGHT_AT = "2026-03-01T10:00:00+00:00"


@dataclass
class Question:
    """One request as it came: its query, its token and its form."""

    path: str
    query: dict[str, list[str]]
    token: str | None
    images: list[bytes] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


@dataclass
class Fake:
    """What the server answers with; tests change it while it runs."""

    is_drawing_model: bool = True
    token: str | None = None
    unknown: float = 0.1
    failure: str | None = None
    job_steps: int = 3
    hold: threading.Event | None = None
    classes: list[tuple[str, int]] = field(default_factory=lambda: [("apple", 1), ("bee", 1), ("triangle", 2)])
    questions: list[Question] = field(default_factory=list)
    polls: int = -1
    address: str = ""

    def __post_init__(self) -> None:
        """Start with a history that gave the classes."""
        self.history: list[dict[str, Any]] = [change(0, "create", [])]
        for task in sorted({task for _, task in self.classes}):
            names = [name for name, other in self.classes if other == task]
            self.history.append(change(task, "learn", names, {"accuracy": 0.9}))

    def asked(self, path: str) -> list[Question]:
        """Questions that came for one path."""
        return [question for question in self.questions if question.path == path]

    def model(self) -> dict[str, Any]:
        """The answer to GET /model."""
        return {
            "version": self.history[-1]["number"],
            "name": "my drawings",
            "is_drawing_model": self.is_drawing_model,
            "image_size": 28,
            "channels": 1,
            "classes": [
                {"name": name, "task": task, "taught_at": TAUGHT_AT, "num_images": 12} for name, task in self.classes
            ],
            "capacity": {"num_coordinates": 1000, "num_free": 750, "used": 0.25},
            "tasks_left": 40,
            "history": self.history,
            "needs_token": self.token is not None,
            "learning": "job-1" if self.polls >= 0 else None,
        }

    def predict(self, question: Question) -> tuple[int, dict[str, Any]]:
        """The newest class wins by a fixed lead."""
        if self.hold is not None:
            self.hold.wait(10)
        names = [name for name, _ in reversed(self.classes)][:5]
        weights = [2.0**-place for place in range(len(names))]
        shares = [weight / sum(weights) for weight in weights]
        answer = {
            "image": "image",
            "guesses": [{"name": name, "probability": share} for name, share in zip(names, shares, strict=True)],
            "unknown": self.unknown,
            "is_unknown": self.unknown >= 0.5,
        }
        return 200, {"version": self.history[-1]["number"], "answers": [answer] * len(question.images)}

    def learn(self, question: Question) -> tuple[int, dict[str, Any]]:
        """Accept a job that ends after some looks at it."""
        if self.failure:
            return 422, {"detail": self.failure}
        self.polls = 0
        return 202, {"job": "job-1"}

    def job(self) -> tuple[int, dict[str, Any]]:
        """A step further with every look."""
        self.polls += 1
        answer = {"id": "job-1", "progress": self.polls / self.job_steps, "step": "train", "seconds_left": 2.5}
        if self.polls < self.job_steps:
            return 200, {**answer, "state": "running", "error": None, "change": None}
        self.polls = -1
        if self.failure:
            return 200, {**answer, "state": "failed", "error": self.failure, "change": None}
        labels = sorted(set(self.asked("/learn")[-1].labels))
        task = max(task for _, task in self.classes) + 1
        self.classes += [(label, task) for label in labels]
        self.history.append(change(self.history[-1]["number"] + 1, "learn", labels))
        return 200, {**answer, "state": "done", "error": None, "change": self.history[-1]}

    def undo(self) -> tuple[int, dict[str, Any]]:
        """Take back the last change that stands, which is always a task here."""
        standing = [each for each in self.history if set(each["classes"]) & {name for name, _ in self.classes}]
        if not standing:
            return 409, {"detail": "there is nothing to undo; teach something first"}
        last = standing[-1]
        self.classes = [each for each in self.classes if each[0] not in last["classes"]]
        report = {"undone": last["number"], "kind": last["kind"]}
        self.history.append(change(self.history[-1]["number"] + 1, "undo", last["classes"], report))
        return 200, {"change": self.history[-1]}


def change(number: int, kind: str, classes: list[str], report: dict[str, Any] | None = None) -> dict[str, Any]:
    """One entry of the history."""
    return {"number": number, "kind": kind, "at": TAUGHT_AT, "classes": classes, "report": report or {}}


class Handler(BaseHTTPRequestHandler):
    """Answers from the fake that its server carries."""

    @property
    def fake(self) -> Fake:
        """The answers of this server."""
        return self.server.fake  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        """Files of the page, the model and jobs."""
        path = urlsplit(self.path).path
        if path == "/" or path.startswith("/assets/"):
            return self.send_page_file("index.html" if path == "/" else path.removeprefix("/assets/"))
        if path == "/model":
            return self.send_json(200, self.fake.model())
        if path.startswith("/jobs/"):
            return self.send_json(*self.fake.job())
        return self.send_json(404, {"detail": f"There is nothing at {path}"})

    def do_POST(self) -> None:
        """Predict, learn and undo."""
        question = self.read_question()
        self.fake.questions.append(question)
        if question.path != "/predict" and question.token != self.fake.token:
            return self.send_json(401, {"detail": "changing the model needs the server's token; send it"})
        if question.path == "/undo":
            return self.send_json(*self.fake.undo())
        return self.send_json(*(self.fake.predict if question.path == "/predict" else self.fake.learn)(question))

    def read_question(self) -> Question:
        """Take the form of a request apart."""
        address = urlsplit(self.path)
        authorization = self.headers.get("Authorization")
        token = authorization.removeprefix("Bearer ") if authorization else None
        question = Question(address.path, parse_qs(address.query), token)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if body:
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
                content = part.get_payload(decode=True)
                if part.get_param("name", header="Content-Disposition") == "images":
                    question.images.append(content)
                else:
                    question.labels.append(content.decode())
        return question

    def send_page_file(self, name: str) -> None:
        """One of the page's own files."""
        self.send(200, MEDIA_TYPES[name.rpartition(".")[2]], PAGE.joinpath(name).read_bytes())

    def send_json(self, status: int, answer: dict[str, Any]) -> None:
        """An answer of the service."""
        self.send(status, "application/json", json.dumps(answer).encode())

    def send(self, status: int, media_type: str, body: bytes) -> None:
        """Whole answers only; a browser that has gone is no error."""
        try:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep the output of the tests clean."""


@contextmanager
def serve(fake: Fake) -> Iterator[Fake]:
    """Answer on a free port of this machine until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.fake = fake  # type: ignore[attr-defined]
    fake.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
