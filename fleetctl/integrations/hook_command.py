"""Hook command: the line that a harness runs for each event, made, recognised, changed.

It stays the same over upgrades: Codex trusts a hook by the hash of its command.
"""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from fleetd.host import paths
from fleetd.protocol.errors import InvalidState

from .registry import Harness, HookEvent

ENFORCE = "enforce-locks"
DOCTOR = "doctor"
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


class Installation(NamedTuple):
    """What of this installation goes into a command."""

    interpreter: str
    client: str
    assignments: str = ""

    def command(self, harness: Harness, event: HookEvent, *, enforce: bool = False) -> str:
        """Return the command line for an event of a harness."""
        words = [harness.name]
        if enforce and event.name == harness.enforces_at:
            words.append(ENFORCE)
        if event.word:
            words.append(event.word)
        program = f"{quoted(self.interpreter)} -I -S {quoted(self.client)}"
        return f"{self.assignments}{program} {' '.join(words)} {harness.ending}"


def this_installation() -> Installation:
    """Return what a command of this installation is made of; raises InvalidState."""
    if not sys.executable:
        raise InvalidState(
            "This Python does not know its own executable, so no hook could name it.",
            hint="Run fleetctl with a Python that was installed as a program.",
        )
    return Installation(steady_interpreter(Path(sys.executable)), str(client()), _assignments())


def client() -> Path:
    """Return the hook client of this installation."""
    return Path(__file__).absolute().parent.parent / "hook.py"


def steady_interpreter(executable: Path) -> str:
    """Return the steadiest name of an interpreter.

    ``python3`` beside it, where that is the same: it outlives a step from 3.11 to 3.12, and the
    hook needs nothing but a Python 3. Links are not resolved: the ``python3`` of a virtual
    environment goes on working when the Python below it is replaced.
    """
    steady = executable.with_name("python3")
    try:
        same = steady.samefile(executable)
    except OSError:
        same = False
    return str(steady if same else executable)


def _assignments() -> str:
    """Return what the hook must be told, because it reads no configuration."""
    # Imported here: who makes no command needs no settings.
    from fleetd.config import ConfigError, load

    try:
        configured = load().config.socket
    except ConfigError as error:
        raise InvalidState(str(error), hint="Correct the value, then try again.") from error
    untold = {name: value for name, value in os.environ.items() if name != "FLEET_SOCKET"}
    if configured == paths.socket_path(untold):
        return ""
    return f"FLEET_SOCKET={quoted(str(configured))} "


def quoted(text: str) -> str:
    """Return a text as one word of a shell, always in quotes, so that its look never changes."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def is_ours(command: object, harness: Harness) -> bool:
    """Return whether a command runs fleetd's hook for this harness, of whatever installation."""
    return isinstance(command, str) and _shape(harness).search(command) is not None


def enforces(command: str) -> bool:
    """Return whether a command of ours denies edits of files that others hold."""
    return f" {ENFORCE} " in command


def for_doctor(command: str, harness: Harness) -> str:
    """Return a command of ours that asks for a sign of life and leaves nothing behind."""
    return _shape(harness).sub(lambda found: f"{found[0]} {DOCTOR}", command, count=1)


def program_of(command: str) -> tuple[str, str]:
    """Return the interpreter and the client that a command of ours names; empty where unclear."""
    try:
        words = [word for word in shlex.split(command) if not _ASSIGNMENT.match(word)]
    except ValueError:
        return "", ""
    client = next((word for word in words if word.endswith("/fleetctl/hook.py")), "")
    return words[0] if words else "", client


def _shape(harness: Harness) -> re.Pattern[str]:
    return re.compile(rf"/fleetctl/hook\.py'? {re.escape(harness.name)}(?= |$)")
