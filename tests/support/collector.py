"""A collector of OpenTelemetry: receives spans over HTTP or HTTPS and decodes each."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Collector:
    """``bodies`` are the accepted requests, ``spans`` the spans in them.

    It refuses requests with ``status`` from request number ``fails_from`` on, and reports
    ``rejects`` spans of each accepted request as rejected.
    """

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.spans: list[Any] = []
        self.status = 200
        self.fails_from = 10**9
        self.rejects = 0
        self.url = ""

    def take(self, kind: str, body: bytes) -> bytes:
        """Decode a request and return the response."""
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.rejects
        answer.partial_success.error_message = "too \x1b[31mold" if self.rejects else ""
        if kind == "application/json":
            for each in json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"]:
                self.spans.append(each)
            told = {"rejectedSpans": str(self.rejects), "errorMessage": "too old"}
            return json.dumps({"partialSuccess": told} if self.rejects else {}).encode()
        assert kind == "application/x-protobuf"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return answer.SerializeToString()

    @contextmanager
    def running(self, certificate: tuple[Path, Path] | None = None) -> Iterator["Collector"]:
        """Serve until the block ends."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                failed = len(collector.bodies) + 1 >= collector.fails_from
                answer = b""
                if not failed:
                    collector.bodies.append(body)
                    collector.paths.append(self.path)
                    collector.headers.append(dict(self.headers))
                    answer = collector.take(self.headers["Content-Type"], body)
                self.send_response(collector.status if failed else 200)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            if certificate is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "http" if certificate is None else "https"
            self.url = f"{scheme}://localhost:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()
