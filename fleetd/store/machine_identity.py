"""Identity of this machine in a shared store: its id, and a nonce for each start of its daemon.

The id alone proves nothing, because a copy of the directory contains it, too. So every start draws
a nonce, which it writes beside the id and into the store. A daemon that finds a nonce in the store
that was never on this disk has been overtaken by another daemon of the same id.
"""

import contextlib
import logging
import os
import re
import secrets
from pathlib import Path

import msgspec

from ..host.atomic_files import Directory, make_directories, write_file, write_new
from ..host.clock import uptime
from .api import StoreRefused

ID_FILE = "machine-id"
_ID = re.compile(r"[0-9a-f]{16}")


def machine_id(directory: Path) -> str:
    """Return the id of this machine, created at the first call and kept in a file.

    Raises StoreRefused for a file that is not fleetd's: under another id the machine would be
    another one, and would leave its agents and files behind.
    """
    path = directory / ID_FILE
    try:
        make_directories(directory)
        if not path.exists():
            _make_id(path)
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreRefused(f"{path} cannot be read: {error}") from error
    if not _ID.fullmatch(text):
        raise StoreRefused(
            f"{path} holds no machine id (16 hex digits). Restore it from a copy. If you "
            "remove it, this machine counts as a new one."
        )
    return text


def _make_id(path: Path) -> None:
    """Write the file whole or not at all; of two concurrent writers, the first one wins."""
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        write_new(part, f"{secrets.token_hex(8)}\n".encode())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(part)
    finally:
        part.unlink(missing_ok=True)


log = logging.getLogger("fleetd")
STARTS_FILE = "machine-nonces"
# Starts kept in the file: for the last few it is unknown whether they reached the store.
KEPT = 4


class DaemonStart(msgspec.Struct, frozen=True):
    """One start of a daemon with this directory: its nonce, and the process that it was."""

    nonce: str
    pid: int
    started: str | None


class DaemonInstance:
    """The current start of the daemon, and the last ones before it that are on the disk.

    ``boot_id`` is the scope of its pids: the boot, and the pid namespace within it.
    """

    def __init__(self, directory: Path) -> None:
        self.nonce = secrets.token_hex(8)
        namespace = ""
        with contextlib.suppress(OSError):
            namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it names no path
        self.boot_id = f"{uptime().boot_id}/{namespace}"
        self.earlier: list[DaemonStart] = []
        self._directory = directory
        self._begun = False

    def begin(self, started: str | None) -> None:
        """Read the earlier starts, and add this one to them; only the first call does.

        A disk that refuses is no reason not to serve. After a crash, another daemon of the same id
        would then be suspected until it is clear that there is none.
        """
        if self._begun:
            return
        self._begun = True
        path = self._directory / STARTS_FILE
        try:
            self.earlier = _starts(path)
            now = DaemonStart(self.nonce, os.getpid(), started)
            _write(self._directory, [*self.earlier, now][-KEPT:])
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be used: %s", path, error)


def _starts(path: Path) -> list[DaemonStart]:
    """Return the starts that a file holds, oldest first; raises OSError, DecodeError."""
    with contextlib.suppress(FileNotFoundError):
        return msgspec.json.decode(path.read_bytes(), type=list[DaemonStart])
    return []


def _write(directory: Path, starts: list[DaemonStart]) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_file(Directory(descriptor, directory), STARTS_FILE, msgspec.json.encode(starts))
    finally:
        os.close(descriptor)
