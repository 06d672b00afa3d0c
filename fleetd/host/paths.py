"""Paths of fleetd on this machine, from platformdirs and the environment; makes nothing."""

import os
from collections.abc import Mapping
from pathlib import Path

from . import socket_place
from .socket_place import APP
from .socket_place import PathRefused as PathRefused
from .socket_place import check_socket_length as check_socket_length

# The program that settings of agent CLIs name for hooks; its process is recognized by this name.
LAUNCHER = "fleet-hook"


def _dirs() -> tuple[Path, Path]:
    # Imported here: a command that is given its socket needs no platformdirs (15 ms).
    from platformdirs import PlatformDirs

    dirs = PlatformDirs(APP, appauthor=False)
    return dirs.user_data_path, dirs.user_config_path


def data_path() -> Path:
    """Return the directory for data: ``fleet`` in ``XDG_DATA_HOME``, else the platform's."""
    return _dirs()[0]


def database_path(env: Mapping[str, str] = os.environ) -> Path:
    """Return the database file: ``FLEET_DB_PATH`` or ``squawk.db`` in the data directory."""
    if value := env.get("FLEET_DB_PATH"):
        return Path(value).expanduser()
    return _dirs()[0] / "squawk.db"


def checkpoints_path(env: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of checkpoint files, inside ``FLIGHTLINE_DIR`` or ``~/.flightline``."""
    return Path(env.get("FLIGHTLINE_DIR") or "~/.flightline").expanduser() / "checkpoints"


def config_path(env: Mapping[str, str] = os.environ) -> Path:
    """Return the configuration file: ``FLEET_CONFIG`` or ``config.toml``."""
    if value := env.get("FLEET_CONFIG"):
        return Path(value).expanduser()
    return _dirs()[1] / "config.toml"


def opencode_database(env: Mapping[str, str] = os.environ) -> Path:
    """Return the database in which OpenCode keeps its sessions, on every platform."""
    data = env.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "opencode" / "opencode.db"


def state_path() -> Path:
    """Return the directory for state: ``fleet`` in ``XDG_STATE_HOME``, else the platform's."""
    return Path(socket_place.state_path())


def of_socket(path: str) -> Path:
    """Return the path of a socket as a setting or a variable gives it."""
    return Path(socket_place.of_socket(path))


def spool_path() -> Path:
    """Return the directory where the hook client leaves hooks that the daemon did not take."""
    return state_path() / "spool"


def socket_path(env: Mapping[str, str] = os.environ) -> Path:
    """Return the socket: ``FLEET_SOCKET``, the runtime directory, else the state directory."""
    return Path(socket_place.socket_path(env))


def runtime_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Return the directory made for the socket alone, where no socket is named."""
    return Path(socket_place.runtime_dir(env))


def lock_of_socket(socket: Path) -> Path:
    """Return the lock file of the daemon that serves a socket; its text is the pid."""
    return socket.with_name("fleetd.lock")


def locks_of(database: Path, checkpoints: Path, socket: Path) -> dict[str, Path]:
    """Return the files that a daemon locks to serve the socket and write in the stores.

    Each key names what the file locks. A store with two names has one lock. The name of the lock
    beside the checkpoint files is one that no run may have.
    """
    database, checkpoints = database.resolve(), checkpoints.resolve()
    return {
        f"the socket {socket}": lock_of_socket(socket),
        f"the database {database}": database.with_name(f"{database.name}-lock"),
        f"the directory of checkpoints {checkpoints}": checkpoints / ".fleetd.lock",
    }
