"""A server that answers what a test says, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

#: Status and body; a body of fewer bytes than it says breaks off, that of a redirect says where to.
Answer = tuple[int, bytes]


@dataclass
class Answering:
    """Where it is, and what it was asked: path, headers and body."""

    url: str = ""
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def forms(self) -> list[dict[str, str]]:
        """The bodies, as forms."""
        return [{name: values[0] for name, values in parse_qs(body.decode()).items()} for _, _, body in self.asked]


@contextmanager
def answering(answer: Callable[[str, bytes], Answer]) -> Iterator[Answering]:
    """A server on a port of its own until the block is left; the function gets path and body."""
    found = Answering()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found.asked.append((self.path, dict(self.headers), body))
            status, content = answer(self.path, body)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", content.decode())
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.removesuffix(b"<breaks off>"))

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        found.url = f"http://127.0.0.1:{server.server_port}"
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
