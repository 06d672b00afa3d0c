"""Empty home directories of new users, and their daemons; must not know rules."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import shared_store
from tests.support.empty_store import put_empty
from tests.support.processes import Daemon, environment


@contextmanager
def entered(patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Enter an empty home directory; the current directory is a project in it.

    The home has a short name, because a socket's path must fit into 107 bytes.
    """
    home = Path(tempfile.mkdtemp(prefix="fleet-")).resolve()
    env = environment(home)
    for name in [name for name in os.environ if name not in env]:
        patch.delenv(name)
    for name, value in env.items():
        patch.setenv(name, value)
    patch.chdir(home / "project")
    try:
        yield home
    finally:
        patch.undo()
        shutil.rmtree(home)


@contextmanager
def daemon_in(home: Path, warm: bool = False) -> Iterator[Daemon]:
    """Run a daemon in an entered home; it must end with status 0."""
    if warm and not shared_store.SERVER:
        put_empty(home / "data" / "squawk.db")
    running = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log", warm=warm)
    running.start()
    try:
        yield running
    finally:
        if running.process is not None:
            running.stop()
