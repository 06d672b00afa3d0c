"""Where PostgreSQL's programs are, and as whom its server runs; must not start any."""

import os
import pwd
import shutil
from pathlib import Path


class NotInstalled(Exception):
    """There is no PostgreSQL server on this machine; the text says how to get one."""


def binaries() -> Path:
    """Return the directory of the newest PostgreSQL that is installed.

    Raises NotInstalled.
    """
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    if (initdb := shutil.which("initdb")) is not None:
        return Path(initdb).resolve().parent
    raise NotInstalled(
        "No PostgreSQL server is installed (no initdb in /usr/lib/postgresql or on the PATH). "
        "Install one, such as with: sudo apt-get install postgresql"
    )


def unprivileged() -> pwd.struct_passwd | None:
    """Return whom the server runs as, None for whoever runs this: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
