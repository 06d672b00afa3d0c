"""Place of the socket, as text: all that a client needs to know about this machine's paths.

Clients start often, so this imports only what every Python has loaded. ``paths`` has the rest.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

APP = "fleet"
# sun_path holds 108 bytes on Linux and 104 on the BSDs and macOS, the closing NUL included.
SOCKET_PATH_MAX = 103 if sys.platform == "darwin" else 107


class PathRefused(Exception):
    """A path cannot be used; the text says why and what to do."""


def socket_path(env: Mapping[str, str] = os.environ) -> str:
    """Return the socket: ``FLEET_SOCKET``, the runtime directory, else the state directory.

    Never ``/tmp``, where another user could have put something first.
    """
    if value := env.get("FLEET_SOCKET"):
        return of_socket(value)
    return f"{runtime_dir(env)}/fleetd.sock"


def of_socket(path: str) -> str:
    """Return the path of a socket, with ``~`` and ``~`` plus the user's own name expanded.

    Another user's home is not expanded: nobody is served there. The hook clients do the same.
    """
    user, slash, rest = path.partition("/")
    own = pwd.getpwuid(os.getuid()) if user.startswith("~") else None
    homes = {"~": home(), f"~{own.pw_name}": own.pw_dir} if own else {}
    return tidy(homes.get(user, user) + slash + rest)


def runtime_dir(env: Mapping[str, str] = os.environ) -> str:
    """Return the directory made for the socket alone, where no socket is named."""
    if (value := env.get("XDG_RUNTIME_DIR", "")).startswith("/"):
        return tidy(f"{value}/{APP}")
    per_user = f"/run/user/{os.getuid()}"
    if _is_ours(per_user):
        return f"{per_user}/{APP}"
    return state_path()


def state_path() -> str:
    """Return the directory for state: ``fleet`` in ``XDG_STATE_HOME`` or in the platform's place.

    platformdirs is not used: its versions differ, and the hook client must find the same place.
    """
    if (value := os.environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return tidy(f"{value}/{APP}")
    below = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    return tidy(f"{home()}/{below}/{APP}")


def home() -> str:
    """Return the user's home: ``HOME`` if that is absolute, else the one the system knows."""
    known = os.environ.get("HOME", "")
    return known if known.startswith("/") else pwd.getpwuid(os.getuid()).pw_dir


def tidy(path: str) -> str:
    """Return a path as ``pathlib`` writes it: without empty parts and single dots."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    slashes = len(path) - len(path.lstrip("/"))
    root = "" if not slashes else "//" if slashes == 2 else "/"  # POSIX: two may mean something
    return root + "/".join(parts) or "."


def check_socket_length(path: str | os.PathLike[str]) -> None:
    """Raise PathRefused when the kernel could not take the path as a socket address."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_MAX:
        raise PathRefused(
            f"The socket path is {length} bytes long, {SOCKET_PATH_MAX} are allowed: {path}. "
            "Set FLEET_SOCKET to a shorter path."
        )


def _is_ours(directory: str) -> bool:
    try:
        info = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()
