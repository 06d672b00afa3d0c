"""Where the demo plays: a directory of its own and the environment that keeps everything in it.

Must not start a process.
"""

import os
import shutil
import signal
import site
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetd.host import paths

_OURS = ("FLEET_", "FLIGHTLINE_", "XDG_", "GIT_", "LISTEN_", "NOTIFY_", "WATCHDOG_")
_FOLDERS = ("home", "run", "data", "config", "state", "cache")


@contextmanager
def temporary_directory(*, keep: bool) -> Iterator[Path]:
    """Provide a directory with a place for everything; removes it at the end unless kept."""
    directory = _make()
    try:
        for name in _FOLDERS:
            (directory / name).mkdir(mode=0o700)
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _make() -> Path:
    """Make the directory, where a path is short enough for a socket."""
    socket_path = Path(tempfile.gettempdir(), "fleet-demo-12345678", "run", "fleetd.sock")
    try:
        paths.check_socket_length(socket_path)
    except paths.PathRefused:
        return Path(tempfile.mkdtemp(prefix="fleet-demo-", dir="/tmp"))
    return Path(tempfile.mkdtemp(prefix="fleet-demo-"))


class Interruption:
    """Turns the first signal into KeyboardInterrupt and is deaf to all that follow."""

    def __init__(self) -> None:
        self._deaf = False

    def ignore(self) -> None:
        """Let nothing interrupt what comes now: the end must not stop half way."""
        self._deaf = True

    def __call__(self, number: int, _frame: object) -> None:
        """Take a signal."""
        if not self._deaf:
            self._deaf = True
            raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that nothing is left behind."""
    interruption = Interruption()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interruption) for number in numbers]
    try:
        yield interruption
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def environment(directory: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's is within reach."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    here = str(Path(__file__).parents[2])
    env |= {
        "HOME": str(directory / "home"),
        # What pip installed for the user stays importable though HOME is another.
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONPATH": os.pathsep.join(filter(None, (here, env.get("PYTHONPATH")))),
        "PYTHONDONTWRITEBYTECODE": "1",
        # The prompt goes through a pipe as it is, whatever the terminal can show.
        "PYTHONUTF8": "1",
        "FLEET_SOCKET": str(directory / "run" / "fleetd.sock"),
        "FLEET_DB_PATH": str(directory / "data" / "squawk.db"),
        "FLEET_CONFIG": str(directory / "config" / "config.toml"),
        "FLIGHTLINE_DIR": str(directory / "flightline"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "operator",
        "GIT_COMMITTER_NAME": "operator",
        "GIT_AUTHOR_EMAIL": "demo@example.invalid",
        "GIT_COMMITTER_EMAIL": "demo@example.invalid",
    }
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        env[f"XDG_{name}_HOME"] = str(directory / name.lower())
    env["XDG_RUNTIME_DIR"] = str(directory / "run")
    return env
