"""A network between clients and a server: it delays, loses, and cuts in the middle of a COMMIT.

It runs in a separate process, so that traffic does not wait for the process that controls it.
Must not know fleetd; of PostgreSQL it knows only the bytes of a COMMIT on the wire.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

Cut = Literal["before", "half", "after"]
_CHUNK = 1 << 16
# A server that received its last message should not first see that the client disconnected.
_LINGER_S = 0.05


class Network:
    """Several ways to a server on 127.0.0.1, each with its own port; a context manager."""

    def __init__(self, server: int, ways: int, *, delay_ms: float = 0.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.network", str(server), str(ways), str(delay_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        assert self._process.stdout is not None
        self.ports: list[int] = json.loads(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        """Return the process id of the network."""
        return self._process.pid

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def cut(self, way: int, when: Cut) -> None:
        """Cut the next connection that commits, before, in the middle of or after its COMMIT."""
        self._say(way, cut=when)

    def close(self, way: int) -> None:
        """Cut all connections, and let nothing through until ``open``."""
        self._say(way, down=True)

    def open(self, way: int) -> None:
        """Let everything through again."""
        self._say(way, down=False, cut=None)

    def cuts(self) -> int:
        """Return how many connections were cut at a COMMIT so far."""
        return self._count("cuts")

    def asked(self) -> int:
        """Return how many messages clients sent to the server so far: these are round trips."""
        return self._count("asked")

    def _count(self, what: str) -> int:
        self._say(0, count=what)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _say(self, way: int, **what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([way, what]) + "\n")
        self._process.stdin.flush()


class _Way:
    """One port and the connections to it."""

    cuts = asked = 0

    def __init__(self, server: int, delay_ms: float) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.cut: Cut | None = None
        self.down = False
        self._server, self._delay_s = server, delay_ms / 1_000
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def command(self, what: dict[str, Any]) -> None:
        """Apply a command."""
        self.cut = what.get("cut", self.cut)
        self.down = what.get("down", self.down)
        if self.down:
            for sock in tuple(self._open):
                _end(sock)

    def _accept(self) -> None:
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(client)
            if self.down:
                return
            with contextlib.suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self._server))
                stack.enter_context(server)
                both = {client, server}
                self._open |= both
                stack.callback(self._open.difference_update, both)
                for sock in both:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server, asks=True)
                back.join()

    def _pump(self, one: socket.socket, other: socket.socket, *, asks: bool = False) -> None:
        """Carry data from one to the other, until either is closed."""
        with contextlib.suppress(OSError):
            while data := one.recv(_CHUNK):
                _Way.asked += asks
                if self._delay_s:
                    time.sleep(self._delay_s)
                if asks and self.cut and b"COMMIT\0" in data:
                    self._break(one, other, data)
                    break
                other.sendall(data)
        for sock in (one, other):
            _end(sock)

    def _break(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        when, self.cut = self.cut, None
        _Way.cuts += 1
        _end(client)
        if when != "before":
            server.sendall(data[: len(data) // 2] if when == "half" else data)
            time.sleep(_LINGER_S)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def main(server: str, ways: str, delay_ms: str) -> None:
    """Carry until standard input ends; each line of it is a command; first print the ports."""
    there = [_Way(int(server), float(delay_ms)) for _ in range(int(ways))]
    print(json.dumps([way.listener.getsockname()[1] for way in there]), flush=True)
    for line in sys.stdin:
        number, what = json.loads(line)
        if counted := what.pop("count", None):
            print(getattr(_Way, counted), flush=True)
        there[number].command(what)


if __name__ == "__main__":
    main(*sys.argv[1:])
