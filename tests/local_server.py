"""A web server of this machine that gives files as a plain site and as the Hugging Face Hub do."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class LocalServer:
    """Files by their path, how often each is yet to be cut short on its way, and the requests that came."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    error_code: str = ""
    """With what the Hub would refuse every file, if with anything."""

    def num_gets(self) -> int:
        """Return how often the content of a file was asked for."""
        return sum(request in [f"GET {path}" for path in self.files] for request in self.requests)


@contextmanager
def serve_files() -> Iterator[LocalServer]:
    """Serve until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            server.requests.append(f"{self.command} {self.path}")
            content = server.files.get(self.path)
            if content is None or server.error_code:
                self.send_response(403 if server.error_code else 404)
                self.send_header("X-Error-Code", server.error_code or "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("Accept-Ranges", "bytes")
            if "Range" in self.headers:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if with_body:
                cuts_left = server.cut.get(self.path, 0)
                server.cut[self.path] = max(0, cuts_left - 1)
                self.wfile.write(content[start : len(content) // 2 if cuts_left else len(content)])

        def log_message(self, format: str, *arguments: object) -> None:
            """Keep the test's output clean."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = LocalServer(f"http://127.0.0.1:{listening.server_address[1]}")
    thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
