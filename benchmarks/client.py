"""A minimal client, so that a row is the daemon's time; must not know any method.

It writes a line, reads a line and decodes it: the rest of ``fleetctl`` is measured as a process.
"""

import socket
from pathlib import Path
from typing import Any, Self

import msgspec

from fleetd.protocol.errors import from_wire

PATIENCE_S = 60.0
_CHUNK = 1 << 20


class Client:
    """One blocking connection, one call at a time."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE_S)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Call a method and return its result as plain data; raises the FleetError in the reply."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._socket.sendall(msgspec.json.encode(request) + b"\n")
        reply = msgspec.json.decode(self._line())
        if error := reply.get("error"):
            raise from_wire(error["code"], error["message"], error.get("data"))
        return reply["result"]

    def _line(self) -> bytes:
        parts: list[bytes] = []
        while not parts or not parts[-1].endswith(b"\n"):
            if not (part := self._socket.recv(_CHUNK)):
                raise ConnectionError("fleetd closed the connection before it answered")
            parts.append(part)
        return b"".join(parts)
