"""Paths of fleetd on this machine, by platformdirs and the environment; makes nothing."""

import os
import pwd
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

APP = "fleet"
# sun_path holds 108 bytes on Linux and 104 on the BSDs and macOS, the closing NUL included.
SOCKET_PATH_MAX = 103 if sys.platform == "darwin" else 107


class PathRefused(Exception):
    """A path cannot be used; the text says why and what to do."""


def _dirs() -> tuple[Path, Path]:
    # Imported here: a command that is told its socket needs no platformdirs (15 ms).
    from platformdirs import PlatformDirs

    dirs = PlatformDirs(APP, appauthor=False)
    return dirs.user_data_path, dirs.user_config_path


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


def state_path() -> Path:
    """Return the directory for state: ``fleet`` in ``XDG_STATE_HOME`` or in the platform's place.

    platformdirs is not asked: its versions differ, and the hook client must find the same place.
    """
    if (value := os.environ.get("XDG_STATE_HOME")) and Path(value).is_absolute():
        return Path(value) / APP
    below = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    return Path(_home()) / below / APP


def of_socket(path: str) -> Path:
    """Return the path of a socket, whole where it begins with ``~`` or ``~`` and the user's name.

    Another user's home stays as it is: nobody is served there. The hook clients decide the same.
    """
    user, slash, rest = path.partition("/")
    own = pwd.getpwuid(os.getuid()) if user.startswith("~") else None
    homes = {"~": _home(), f"~{own.pw_name}": own.pw_dir} if own else {}
    return Path(homes.get(user, user) + slash + rest)


def _home() -> str:
    home = os.environ.get("HOME", "")
    return home if Path(home).is_absolute() else pwd.getpwuid(os.getuid()).pw_dir


def spool_path() -> Path:
    """Return the directory where the hook client leaves what the daemon did not take."""
    return state_path() / "spool"


def socket_path(env: Mapping[str, str] = os.environ) -> Path:
    """Return the socket: ``FLEET_SOCKET``, the runtime directory, else the state directory.

    Never ``/tmp``, where anybody could have put something first.
    """
    if value := env.get("FLEET_SOCKET"):
        return of_socket(value)
    return runtime_dir(env) / "fleetd.sock"


def runtime_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Return the directory that is made for the socket alone where no socket is named."""
    if (value := env.get("XDG_RUNTIME_DIR")) and Path(value).is_absolute():
        return Path(value) / APP
    per_user = Path(f"/run/user/{os.getuid()}")
    if _is_ours(per_user):
        return per_user / APP
    return state_path()


def lock_of_socket(socket: Path) -> Path:
    """Return the file that who serves a socket has locked; its text is the pid."""
    return socket.with_name("fleetd.lock")


def locks_of(database: Path, checkpoints: Path, socket: Path) -> dict[str, Path]:
    """Return the files that are locked by whoever serves the socket and writes in the stores.

    The key says what each is the lock of. A store that is reached by two names has one lock. The
    name beside the files of checkpoints is none that a run may have.
    """
    database, checkpoints = database.resolve(), checkpoints.resolve()
    return {
        f"the socket {socket}": lock_of_socket(socket),
        f"the database {database}": database.with_name(f"{database.name}-lock"),
        f"the directory of checkpoints {checkpoints}": checkpoints / ".fleetd.lock",
    }


def _is_ours(directory: Path) -> bool:
    try:
        info = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def check_socket_length(path: Path) -> None:
    """Raise PathRefused when the kernel could not take the path as a socket address."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_MAX:
        raise PathRefused(
            f"The socket path is {length} bytes long, {SOCKET_PATH_MAX} are allowed: {path}. "
            "Set FLEET_SOCKET to a shorter path."
        )
