"""The part of the user's environment that a run gets, and the location of the CLI."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .clis import Cli

# The variables that any program needs, by prefix.
_KEPT = ("PATH", "LANG", "LC_", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "SSL_CERT_")
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS")
_VERSION_S = 60
# No server listens there.
_NOWHERE = "http://127.0.0.1:9"
_LOOPBACK = "127.0.0.1,localhost"


def missing_key(cli: type[Cli]) -> str | None:
    """Return which key is missing, None when there is one."""
    if any(os.environ.get(name) for name in cli.keys):
        return None
    first, *others = cli.keys
    return f"{cli.name} needs your key: set {' or '.join([first, *others])}"


def plain() -> dict[str, str]:
    """Return the environment of any program of a run: no key, and no access to the network."""
    return {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}


def with_key(cli: type[Cli]) -> tuple[dict[str, str], list[str]]:
    """Return the variables for the CLI alone, and their secret values, which no log may contain."""
    theirs = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _NETWORK or name.startswith(cli.variables)
    }
    return theirs, [value for name in cli.keys if (value := theirs.get(name))]


def no_network() -> dict[str, str]:
    """Return the variables that restrict a CLI to the scripted model."""
    names = {"HTTP_PROXY": _NOWHERE, "HTTPS_PROXY": _NOWHERE, "ALL_PROXY": _NOWHERE}
    names["NO_PROXY"] = _LOOPBACK
    return names | {name.lower(): value for name, value in names.items()}


def find(cli: type[Cli], given: Path | None) -> Path | None:
    """Return the program of a CLI, None when it is not here."""
    found = shutil.which(given or cli.name)
    return Path(found).absolute() if found else None


def version(program: Path) -> str:
    """Return a program's output for ``--version``, in an empty home; raises OSError."""
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [str(program), "--version"],
                env=plain() | {"HOME": home},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_VERSION_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OSError(f"{program} --version took more than {_VERSION_S} s.") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise OSError(f"{program} does not know --version. {done.stderr.strip()}".strip())
    return lines[0]


def link(cli: type[Cli], program: Path, commands: Path) -> None:
    """Put the CLI, and the Python of the tests, first in the PATH of the run's shell."""
    commands.mkdir()
    for name, target in ((cli.name, program), ("python3", Path(sys.executable))):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(target))} "$@"\n')
        command.chmod(0o700)
