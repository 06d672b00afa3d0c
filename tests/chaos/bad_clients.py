"""Clients that misbehave, many at a time; must not know the promises."""

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
    """Raise this process's limit for so many sockets, as far as possible."""
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
    """Send as much as possible without waiting; ignore a closed connection."""
    try:
        sock.send(data)
    except OSError:
        return


def reset(sock: socket.socket) -> None:
    """Close a socket with an RST, so that the other end sees it broken."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@contextmanager
def slow_writers(
    gauge: MeasuredDaemon, count: int, chance: random.Random
) -> Iterator[list[socket.socket]]:
    """Connect so many clients: they send nothing, half a line, or half a hook's line."""
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
    """Connect so many clients that request large replies, subscribe, and read nothing."""
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
    """Run a program with so many connections that a test may stop and kill."""
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
