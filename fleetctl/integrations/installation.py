"""This installation: its interpreter, the socket of its settings, the programs that it runs."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetd.host import paths
from fleetd.protocol.errors import InvalidState

if TYPE_CHECKING:
    import subprocess


def this_interpreter(user: str) -> str:
    """Return the most stable path of this interpreter for a ``user``; raises InvalidState.

    That is ``python3`` beside it, if both are the same file: it survives an upgrade from 3.11 to
    3.12, and any Python 3 is enough. Links are not resolved: the ``python3`` of a virtual
    environment keeps working when the Python below it is replaced.
    """
    if not sys.executable:
        raise InvalidState(
            f"This Python does not know its own executable, so no {user} could name it.",
            hint="Run fleetctl with a Python that was installed as a program.",
        )
    executable = Path(sys.executable)
    steady = executable.with_name("python3")
    try:
        same = steady.samefile(executable)
    except OSError:
        same = False
    return str(steady if same else executable)


def configured_socket(known: Mapping[str, str]) -> Path | None:
    """Return the socket of the settings; None where ``known`` variables lead to it anyway.

    Raises InvalidState for settings that cannot be read.
    """
    # Imported here: commands that only read need no settings.
    from fleetd.config import ConfigError, load

    try:
        configured = load().config.socket
    except ConfigError as error:
        raise InvalidState(str(error), hint="Correct the value, then try again.") from error
    return None if configured == paths.socket_path(known) else configured


def run_program(
    words: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run a program and return its result; raises OSError, and TimeoutError for one that hangs."""
    # Imported here: most users of this module never need it.
    import subprocess

    try:
        return subprocess.run(
            words,
            env=env,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(str(error)) from error
