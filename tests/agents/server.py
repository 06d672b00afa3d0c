"""A model's service on loopback that plays a script; must not know what the script is about."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_hex
from typing import Any, Protocol

from tests.agents.script import Asked, Kind, Reply, Script


class Dialect(Protocol):
    """One vendor's API."""

    def kind(self, path: str, body: dict[str, Any]) -> Kind: ...
    def streams(self, path: str, body: dict[str, Any]) -> bool: ...
    def whole(self, reply: Reply, path: str) -> dict[str, Any]: ...
    def events(self, reply: Reply) -> list[tuple[str, dict[str, Any]]]: ...


@contextmanager
def serving(dialect: Dialect, script: Script) -> Iterator[str]:
    """Serve until the block ends; yields the base URL."""

    class Handler(_Handler):
        spoken = dialect
        played = script

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    spoken: Dialect
    played: Script
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            raw = gzip.decompress(raw)
        body = json.loads(raw or b"{}")
        asked = Asked(self.spoken.kind(self.path, body), self.path, body)
        reply = self.played.answer(asked)
        if reply is None:
            self._send(429, "application/json", b'{"error": {"message": "asked too often"}}')
        elif self.spoken.streams(self.path, body):
            self._send(200, "text/event-stream", _sse(self.spoken.events(reply)))
        else:
            whole = json.dumps(self.spoken.whole(reply, self.path)).encode()
            self._send(200, "application/json", whole)

    def do_GET(self) -> None:
        self.do_POST()

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        # Claude Code keeps it with the message.
        self.send_header("request-id", f"req_{token_hex(8)}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Say nothing: what was asked is in the script."""


def _sse(events: list[tuple[str, dict[str, Any]]]) -> bytes:
    lines = []
    for name, data in events:
        lines += [f"event: {name}"] * bool(name) + [f"data: {json.dumps(data)}", ""]
    return "\n".join([*lines, ""]).encode()
