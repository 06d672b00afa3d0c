"""A well-behaved client, a separate program: asks, waits for the answer, notes how long it took.

Must import little: it starts beside what a campaign measures. Arguments: the socket, the pause
between two requests in ms, ``stay`` or ``again`` (a new connection for each request). When its
stdin ends, it prints JSON: the times in microseconds, by how much its own pauses were too long,
which shows how busy the machine was, and its errors.
"""

import json
import select
import socket
import sys
import time

LINE = b'{"jsonrpc":"2.0","id":1,"method":"system.health"}\n'
PATIENCE_S = 30.0


def ask(sock: socket.socket) -> None:
    sock.sendall(LINE)
    reply = b""
    while not reply.endswith(b"\n"):
        data = sock.recv(65_536)
        if not data:
            raise ConnectionError("closed without an answer")
        reply += data
    if b'"result"' not in reply:
        raise ConnectionError(reply.decode()[:300])


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE_S)
    sock.connect(path)
    return sock


def main(path: str, pause_ms: str, manner: str) -> None:
    times: list[float] = []
    late: list[float] = []
    trouble: list[str] = []
    sock = None
    pause, slept = int(pause_ms) / 1_000, time.monotonic()
    while not trouble and not select.select([sys.stdin], [], [], pause)[0]:
        begun = time.monotonic()
        late.append((begun - slept - pause) * 1e6)
        try:
            sock = sock or connect(path)
            ask(sock)
        except OSError as error:
            trouble.append(f"{error!r} after {time.monotonic() - begun:.3f} s")
        times.append((time.monotonic() - begun) * 1e6)
        if manner == "again" and sock:
            sock.close()
            sock = None
        slept = time.monotonic()
    print(json.dumps({"us": times, "late": late, "trouble": trouble}))


if __name__ == "__main__":
    main(*sys.argv[1:])
