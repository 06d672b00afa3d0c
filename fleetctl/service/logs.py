"""The daemon's log, from the journal or from its file."""

import sys
import time
from contextlib import suppress
from pathlib import Path

from fleetd.protocol.errors import NotFound

from ..output import console
from . import process
from .manager import Service, run

_PAUSE_S = 0.3
_CHUNK = 65_536


def command_of(manager: Service | None) -> list[str]:
    """Return the command that shows the log; empty if the log is a file."""
    log = manager.state().log if manager else ""
    return log.split() if log.startswith("journalctl") else []


def last_lines(manager: Service | None, count: int) -> list[str]:
    """Return the last lines; none when there are none or they cannot be read."""
    if command := command_of(manager):
        return run(*command, "--output=cat", f"--lines={count}").stdout.splitlines()
    return process.last_lines(count)


def show(manager: Service | None, count: int, *, follow: bool) -> int:
    """Print the last lines and, with ``follow``, new ones until interrupted.

    Raises NotFound where there is no log, InvalidState where it cannot be read.
    """
    if command := command_of(manager):
        # Imported here: most users of this module never need it.
        import subprocess

        more = ["--follow"] if follow else ["--no-pager"]
        sys.stdout.flush()
        return subprocess.call([*command, f"--lines={count}", *more])
    file = process.log_file()
    lines = process.last_lines(count)
    if not follow and not file.exists():
        raise NotFound(
            f"There is no log at {file}: no fleetd was started in the background by fleetctl.",
            hint="One that was started by hand logs to its terminal.",
        )
    console.lines(lines)
    if follow:
        _follow(file)
    return 0


def _follow(file: Path) -> None:
    """Print what is appended to a file, and to a file that replaces it."""
    inode = position = 0
    with suppress(FileNotFoundError):
        info = file.stat()
        inode, position = info.st_ino, info.st_size
    rest = bytearray()
    while True:
        time.sleep(_PAUSE_S)
        try:
            info = file.stat()
        except FileNotFoundError:
            continue
        if info.st_ino != inode or info.st_size < position:
            inode, position, rest = info.st_ino, 0, bytearray()
        with process.open_log() as opened:
            opened.seek(position)
            while data := opened.read(_CHUNK):
                position += len(data)
                # Keep an incomplete line for the next read, however long it is.
                rest += data
                *whole, rest = rest.split(b"\n") if b"\n" in data else [rest]
                console.lines(line.decode(errors="replace") for line in whole)
        sys.stdout.flush()
