"""Daemons whose imports are already done; imports take most of the time of a start.

A server imports this module and forks the daemons. Each is a separate process that reads its
settings, opens its store and ends by signals. ``tests/integration/daemon`` starts the real program.
"""

import gc
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path

import msgspec
import platformdirs.unix  # noqa: F401 - imported by each daemon when it asks for its directories

from fleetd import __main__, daemon

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])
daemon.prepare_decoders(msgspec.Struct)
# A daemon collects garbage once, at its start. Freezing excludes the objects that exist now.
gc.collect()
gc.freeze()


class WarmDaemon:
    """A forked daemon with the interface of a ``Popen``."""

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        _run_server()
        self._process = _CONTEXT.Process(target=_serve, args=(dict(env), os.getcwd(), log))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status of the daemon; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the status; raises TimeoutExpired."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("fleetd", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the daemon has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the daemon to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End the daemon with SIGKILL."""
        self._process.kill()


def _run_server() -> None:
    """Start the server unless it runs: it outlives the first test that needs it."""
    measured = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    try:
        forkserver.ensure_running()
    finally:
        if measured is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = measured


def _serve(env: dict[str, str], directory: str, log: Path) -> None:
    """Become ``python -m fleetd`` in this environment and directory."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(directory)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv[:] = ["fleetd"]
    sys.exit(__main__.main([]))
