"""Clients that behave badly, many at once; must not know what is promised."""

import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.hostile import line, request
from tests.chaos.measured_daemon import MeasuredDaemon, dial, shut

HALF = b'{"jsonrpc":"2.0","id":1,"method":"system.he'
BEGUN_HOOK = b'{"jsonrpc":"2.0","method":"hook.deliver","params":{' + b"x" * 200_000


def allow_descriptors(count: int) -> None:
    """Make room for so many sockets in this process, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def connect_at_once(path: Path) -> socket.socket | None:
    """Connect without waiting; None where the backlog is full."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(os.fspath(path))
    except OSError:
        sock.close()
        return None
    return sock


def push(sock: socket.socket, data: bytes) -> None:
    """Send what can be sent now; a connection that was closed is none's loss."""
    try:
        sock.send(data)
    except OSError:
        return


def reset(sock: socket.socket) -> None:
    """Close a socket that has something unread, so that the other end sees it broken."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@contextmanager
def slow_writers(
    gauge: MeasuredDaemon, count: int, chance: random.Random
) -> Iterator[list[socket.socket]]:
    """Have so many clients connect: with nothing to say, half a line, or a hook's half line."""
    sockets = []
    try:
        while len(sockets) < count:
            if (sock := connect_at_once(gauge.socket)) is None:
                time.sleep(0.005)
                continue
            sockets.append(sock)
            if begun := chance.choice(
                (b"", b"", HALF[: chance.randrange(1, len(HALF))], BEGUN_HOOK)
            ):
                push(sock, begun)
        yield sockets
    finally:
        for sock in sockets:
            shut(sock)


@contextmanager
def lazy_readers(
    gauge: MeasuredDaemon, count: int, question: bytes
) -> Iterator[list[socket.socket]]:
    """Have so many clients ask for much, and subscribe, and read nothing."""
    subscribe = line(request("event.subscribe", {"since": 0})) + b"\n"
    sockets = []
    try:
        for number in range(count):
            sockets.append(dial(gauge.socket, 10))
            sockets[-1].setblocking(False)
            push(sockets[-1], subscribe if number % 2 else question * 32)
        yield sockets
    finally:
        for sock in sockets:
            shut(sock)


PROGRAM = """
import socket, sys, time
socks = []
for n in range(int(sys.argv[2])):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(sys.argv[1])
    sock.sendall(sys.argv[3].encode() + b"\\n")
    socks.append(sock)
print(flush=True)
time.sleep(600)
"""


@contextmanager
def process_of_clients(
    gauge: MeasuredDaemon, count: int, question: bytes
) -> Iterator[subprocess.Popen[str]]:
    """Run a program with so many connections, which may be stopped and killed."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(gauge.socket), str(count)]
    process = subprocess.Popen([*command, question.decode()], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()
