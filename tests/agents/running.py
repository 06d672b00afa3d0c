"""Runs agent CLIs so that nothing of them stays or leaves; must not know a vendor."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from tests.support.terminal import Terminal, terminal

LIMIT_S = 60
LEAVING_S = 5
# Every process of a run carries this in its environment, wherever it went.
_MARK = "AGENT_RUN"
_KEPT = ("PATH", "HOME", "LANG", "XDG_", "FLEET_SOCKET", "FLEET_DB_PATH", "FLIGHTLINE_DIR")


@dataclass(frozen=True)
class Run:
    """What a run of a CLI left behind."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return stdout's JSON lines."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


class Outside:
    """The proxy that everything but loopback is sent to: it lets nobody out and remembers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.tried: list[str] = []

    def watch(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                self.tried.append(_first_line(connection))


def _first_line(connection: socket.socket) -> str:
    try:
        return connection.recv(2_000).decode(errors="replace").split("\r\n")[0]
    except OSError:
        return "(nothing said)"


@contextmanager
def outside() -> Iterator[Outside]:
    """Stand where the network would be; nobody may have tried to reach it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Outside(listener)
        thread = threading.Thread(target=proxy.watch)
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert not proxy.tried, f"somebody tried to reach {proxy.tried}"


def run(argv: Sequence[str], proxy: Outside, settings: Mapping[str, str]) -> Run:
    """Run a command in the current directory until it ends, which it must do within the limit."""
    with _running(argv, proxy, settings, subprocess.DEVNULL) as (process, ended):
        out = _read(process).read()
        return ended(out)


def converse(
    argv: Sequence[str],
    proxy: Outside,
    settings: Mapping[str, str],
    lines: Sequence[str],
    is_answer: Callable[[str], bool],
) -> Run:
    """Run a command and type lines into it, each after the answer to the one before."""
    first, *later = lines
    left = iter(later)

    def hears(said: str) -> Sequence[str] | None:
        if not is_answer(said):
            return ()
        line = next(left, None)
        return None if line is None else (line,)

    return talk(argv, proxy, settings, [first], hears)


def talk(
    argv: Sequence[str],
    proxy: Outside,
    settings: Mapping[str, str],
    first: Sequence[str],
    hears: Callable[[str], Sequence[str] | None],
) -> Run:
    """Run a command, and type the first lines and what follows each line of its output.

    None ends its input.
    """
    with _running(argv, proxy, settings, subprocess.PIPE) as (process, ended):
        assert process.stdin is not None
        heard: list[str] = []
        with suppress(BrokenPipeError):
            _type(process.stdin, first)
            for said in _read(process):
                heard.append(said)
                if (typed := hears(said)) is None:
                    break
                _type(process.stdin, typed)
            process.stdin.close()
        return ended("".join(heard) + _read(process).read())


@contextmanager
def seated(
    argv: Sequence[str], proxy: Outside, settings: Mapping[str, str], directory: Path
) -> Iterator[Terminal]:
    """Run a command in a terminal, as a person does, until the block ends; nothing of it stays.

    The terminal answers what programs ask it, such as where its cursor is. In one, CLIs look for
    plugins and news, which no setting of theirs forbids: that they try is not held against them.
    """
    mark, tried = token_hex(8), len(proxy.tried)
    environment = _environment(proxy, settings) | {_MARK: mark}
    try:
        with terminal(argv, env=environment, cwd=directory, columns=120, rows=40) as seat:
            seat.screen.write_process_input = seat.press  # type: ignore[method-assign, assignment]
            yield seat
    finally:
        for pid in _marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not _ended(mark)
        del proxy.tried[tried:]


def _type(stdin: IO[str], lines: Sequence[str]) -> None:
    stdin.writelines(f"{line}\n" for line in lines)
    stdin.flush()


@contextmanager
def _running(
    argv: Sequence[str], proxy: Outside, settings: Mapping[str, str], stdin: int
) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], Run]]]:
    """Start a command; at the end of the block nothing of it is left, nor may have been."""
    mark, begun = token_hex(8), time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            argv,
            env=_environment(proxy, settings) | {_MARK: mark},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        watchdog = threading.Timer(LIMIT_S, _end, (process, mark))
        watchdog.start()

        def ended(out: str) -> Run:
            status, seconds = process.wait(), time.monotonic() - begun
            errors.seek(0)
            err = errors.read()
            assert seconds < LIMIT_S, f"ended after {LIMIT_S} s: {argv}\n{out}\n{err}"
            return Run(status, out, err, seconds)

        try:
            yield process, ended
        finally:
            watchdog.cancel()
            watchdog.join()
            if process.poll() is None:
                _end(process, mark)
            with suppress(BrokenPipeError), process:
                pass  # closes its pipes, waits for it
            left = _ended(mark)
    assert not left, f"left running by {argv[0]}: {left}"


def _read(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def _environment(proxy: Outside, settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        kept |= {name: proxy.url, name.lower(): proxy.url}
    kept |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    return kept | dict(settings)


def _end(process: subprocess.Popen[str], mark: str) -> None:
    """End a run, also those of its processes that left the group and may hold its output."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in _marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _ended(mark: str) -> list[str]:
    """Wait until no process of a run is left; end those that stay and return their commands."""
    deadline = time.monotonic() + LEAVING_S
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return list(left.values())


def _marked(mark: str) -> dict[int, str]:
    wanted = f"{_MARK}={mark}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(process.name)] = command
        except (OSError, UnicodeDecodeError):
            continue
    return found
