"""Odd bodies and headers against the server's routes: refused or answered, never an error of the server."""

import io
import logging
import random
import zipfile
from pathlib import Path
from typing import Any

from PIL import Image

from chaos.folders import BrokenPromise

KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
ROUTES = ("/predict", "/predict", "/predict?top=3&threshold=0.5", "/learn", "/learn?mode=quick", "/learn?mode=update")
ODD_QUERIES = ("?top=0", "?top=-1", "?top=x", "?threshold=nan", "?threshold=2", "?mode=%ff", "?top=1&top=2")
ODD_NAMES = ("images", "labels", "archive", "", "Images", "images\x00", "ä", "x" * 300)


class Bodies:
    """A server in this process around a small model; lessons are accepted and come to nothing."""

    def __init__(self, world: Path, folder: Path) -> None:
        """Start the server."""
        from fastapi.testclient import TestClient

        from clare.classifier.classifier import load
        from clare.serve.app import make_app
        from clare.serve.service import Options

        self.world = world
        model = load(world / "model", device="cpu")
        options = Options(world / "model", lambda path: model, ("/bin/true",))
        self.client = TestClient(make_app(options), raise_server_exceptions=False)
        self.client.__enter__()
        self.log = Heard()
        logging.getLogger().addHandler(self.log)
        self.pictures = [path.read_bytes() for path in sorted((world / "pictures").rglob("*.png"))]
        self.answers = [self._answer(picture) for picture in self.pictures]

    def trial(self, draw: random.Random, number: int) -> tuple[str, int]:
        """Send one body; return its route and what came of it."""
        if number % 100 == 99:
            self._check_whole(draw)
        route = draw.choice(ROUTES)
        body, kind = self._body(draw, route)
        headers = {"content-type": kind}
        for _ in range(draw.choice((0, 0, 0, 1, 2))):
            self._change_headers(draw, headers)
        path = route.partition("?")[0] + draw.choice(ODD_QUERIES) if draw.random() < 0.1 else route
        self.log.errors.clear()
        answer = self.client.post(path, content=body, headers=headers)
        if answer.status_code >= 500 or self.log.errors:
            told = f"{path} with {headers} and {body[:2000]!r} was answered {answer.status_code} {answer.text[:300]}"
            raise BrokenPromise(f"{told}; the log: {self.log.errors}")
        if answer.status_code >= 400 and not isinstance(answer.json().get("detail"), str):
            raise BrokenPromise(f"{path} was refused without a sentence: {answer.text[:300]}")
        return f"{route.partition('?')[0]} {answer.status_code}", 1

    def close(self) -> None:
        """End the server."""
        logging.getLogger().removeHandler(self.log)
        self.client.__exit__(None, None, None)

    def _answer(self, picture: bytes) -> Any:
        """Ask what a whole picture shows."""
        answer = self.client.post("/predict", files={"images": ("a.png", picture)})
        if answer.status_code != 200:
            raise BrokenPromise(f"a whole picture was answered {answer.status_code} {answer.text}")
        return answer.json()

    def _check_whole(self, draw: random.Random) -> None:
        """Make sure that whole pictures are still answered as at the beginning."""
        place = draw.randrange(len(self.pictures))
        if (now := self._answer(self.pictures[place])) != self.answers[place]:
            raise BrokenPromise(f"a picture was answered {now} in place of {self.answers[place]}")

    def _body(self, draw: random.Random, route: str) -> tuple[bytes, str]:
        """Make a form, whole or not."""
        boundary = draw.choice((b"xyz", b"xyz", b"a" * 70, b"--"))
        parts = []
        if route.startswith("/learn") and draw.random() < 0.5:
            parts.append(("archive", "a.zip", self._archive(draw)))
        else:
            for place in range(draw.choice((1, 1, 2, 5))):
                parts.append(("images", f"{place}.png", self._picture(draw)))
                if route.startswith("/learn"):
                    parts.append(
                        ("labels", "", draw.choice((b"cat", b"\xff\xfe", b"", b"\x1b[2J", "ä".encode(), b"x" * 999)))
                    )
        if draw.random() < 0.15:
            place = draw.randrange(len(parts))
            parts[place] = (draw.choice(ODD_NAMES), *parts[place][1:])
        body = b"".join(_part(boundary, *part) for part in parts) + b"--" + boundary + b"--\r\n"
        if draw.random() < 0.6:
            body = damaged(draw, body)
        return body, f"multipart/form-data; boundary={boundary.decode()}"

    def _picture(self, draw: random.Random) -> bytes:
        """Return a picture of some format, whole or damaged."""
        whole = draw.choice(self.pictures)
        file = io.BytesIO()
        Image.open(io.BytesIO(whole)).convert(draw.choice(("L", "RGB"))).save(file, draw.choice(KINDS))
        return damaged(draw, file.getvalue()) if draw.random() < 0.7 else file.getvalue()

    def _archive(self, draw: random.Random) -> bytes:
        """Return a zip of class folders, whole or damaged."""
        file = io.BytesIO()
        packing = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
        with zipfile.ZipFile(file, "w", packing) as opened:
            for place in range(draw.choice((0, 1, 3))):
                name = draw.choice(("cat/{}.png", "dog/{}.png", "a/b/{}.png", "../{}.png", "/{}.png", "{}.png", "ä/{}"))
                opened.writestr(name.format(place), self._picture(draw))
        return damaged(draw, file.getvalue()) if draw.random() < 0.8 else file.getvalue()

    def _change_headers(self, draw: random.Random, headers: dict[str, str]) -> None:
        """Say something odd in a header."""
        key, value = draw.choice(
            (
                ("content-length", str(draw.choice((0, 1, 10**12)))),
                ("content-length", draw.choice(("-1", "x", "1e3", "9" * 40))),
                (
                    "content-type",
                    draw.choice(("", "text/plain", "multipart/form-data", "multipart/form-data; boundary=")),
                ),
                ("content-type", 'multipart/form-data; boundary="' + "x" * draw.randrange(300)),
                ("content-encoding", draw.choice(("gzip", "br", "x"))),
                ("origin", draw.choice(("http://evil.example", "null", "http://testserver"))),
                ("host", draw.choice(("evil.example", "", "localhost", "[::1]:9", "a" * 300))),
                ("authorization", draw.choice(("Bearer", "Bearer \t", "Basic eA==", "x" * 3000))),
                ("expect", "100-continue"),
                ("x-forwarded-for", "127.0.0.1, " * 50),
            )
        )
        headers[key] = value


class Heard(logging.Handler):
    """Keeps what the server logs as errors."""

    def __init__(self) -> None:
        """Hear errors alone."""
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.errors.append(self.format(record))


def _part(boundary: bytes, field: str, filename: str, content: bytes) -> bytes:
    """Return one part of a form."""
    named = f'; filename="{filename}"' if filename else ""
    head = f'Content-Disposition: form-data; name="{field}"{named}\r\n\r\n'.encode()
    return b"--" + boundary + b"\r\n" + head + content + b"\r\n"


def damaged(draw: random.Random, data: bytes) -> bytes:
    """Return bytes of which some are others, missing, doubled or new."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        if not changed:
            break
        place, length = draw.randrange(len(changed)), draw.choice((1, 1, 4, 60))
        match draw.randrange(5):
            case 0:
                changed[place] ^= draw.randrange(1, 256)
            case 1:
                del changed[place : place + length]
            case 2:
                changed[place:place] = draw.randbytes(length)
            case 3:
                start = draw.randrange(len(changed))
                changed[place:place] = changed[start : start + length]
            case 4:
                changed[place : place + length] = draw.choice((b"\xff", b"\0")) * length
    return bytes(changed)
