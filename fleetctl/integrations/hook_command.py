"""Hook command: the line that a harness runs for each event, and OpenCode's plugin instead.

It stays the same over upgrades: Codex trusts a hook by the hash of its command.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState

from . import launcher
from .config_file import SettingsFile
from .installation import configured_socket, run_program, this_interpreter
from .registry import Harness, HookEvent

# What a hook before an edit is to do about locks: deny it, and lock the file.
ENFORCE = "enforce-locks"
AUTO = "auto-locks"
LOCK_WORDS = (ENFORCE, AUTO)
DOCTOR = "doctor"
NO_SPOOL = "no-spool"
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_CLIENTS = ("/fleetctl/hook.py", "/fleetctl/_hook_client", launcher.ENDING)
TRY_S = 5


class Installation(NamedTuple):
    """What of this installation goes into a command.

    ``compiled`` is the client in C, empty where none was built or it does not run here.
    ``launcher`` runs one of the two; without one the command does.
    """

    interpreter: str
    client: str
    assignments: str = ""
    compiled: str = ""
    launcher: str = ""

    @property
    def launcher_text(self) -> str:
        """Return what the launcher holds."""
        compiled = quoted(self.compiled) if self.compiled else ""
        python = f"{quoted(self.interpreter)} -I -S {quoted(self.client)}"
        return launcher.text(compiled, python, self.assignments)

    @property
    def launcher_texts(self) -> set[str]:
        """Return what a launcher that works can hold: the compiled client may be left out."""
        return {self.launcher_text, self._replace(compiled="").launcher_text}

    def commands(
        self, harness: Harness, event: HookEvent, *, words: frozenset[str] = frozenset()
    ) -> set[str]:
        """Return every command for an event of a harness that works."""
        ways = (False, True) if harness.direct_since else (False,)
        return {self.command(harness, event, words=words, direct=direct) for direct in ways}

    def command(
        self,
        harness: Harness,
        event: HookEvent,
        *,
        words: frozenset[str] = frozenset(),
        direct: bool = False,
    ) -> str:
        """Return the command for an event of a harness that is written into settings.

        It is a line for a shell, or if it is ``direct``, a program and its words. ``words`` are
        those of ``LOCK_WORDS`` that are wanted.
        """
        said = [harness.name]
        if event.name == harness.enforces_at:
            said += [word for word in LOCK_WORDS if word in words]
        if event.unspooled:
            said.append(NO_SPOOL)
        if event.word:
            said.append(event.word)
        if self.launcher:
            line = f"{quoted(self.launcher)} {' '.join(said)}"
            return line if direct else f"{line} {harness.ending}"
        program = quoted(self.compiled)
        if not self.compiled:
            program = f"{quoted(self.interpreter)} -I -S {quoted(self.client)}"
        return f"{self.assignments}{program} {' '.join(said)} {harness.ending}"


def this_installation() -> Installation:
    """Return what a command of this installation is made of; raises InvalidState."""
    # The hook reads no configuration: it must be told of another socket than the usual.
    untold = {name: value for name, value in os.environ.items() if name != "FLEET_SOCKET"}
    socket = configured_socket(untold)
    assignments = "" if socket is None else f"FLEET_SOCKET={quoted(str(socket))} "
    in_c = client().with_name("_hook_client")
    compiled = str(in_c) if runs(in_c) else ""
    place = str(launcher.path())
    return Installation(this_interpreter("hook"), str(client()), assignments, compiled, place)


def client() -> Path:
    """Return the hook client of this installation that is in Python."""
    return Path(__file__).absolute().parent.parent / "hook.py"


def runs(compiled: Path) -> bool:
    """Return whether a compiled client is there and works: another machine may have built it."""
    if not os.access(compiled, os.X_OK):
        return False
    # Imported here: most that load this module need it never.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="fleet-try-") as directory:
        nowhere = {"XDG_STATE_HOME": directory, "FLEET_SOCKET": f"{directory}/none"}
        try:
            run_program([str(compiled)], timeout_s=TRY_S, env={**os.environ, **nowhere})
        except OSError:
            return False
        return any(Path(directory).rglob("*.json"))


def quoted(text: str) -> str:
    """Return a text as one word of a shell, always in quotes, so that its look never changes."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def is_ours(command: object, harness: Harness) -> bool:
    """Return whether a command runs fleetd's hook for this harness, of whatever installation."""
    return isinstance(command, str) and _shape(harness).search(command) is not None


def lock_words(command: str) -> frozenset[str]:
    """Return what a command of ours does about locks."""
    return frozenset(LOCK_WORDS) & {*command.split()}


def wanted_words(now: frozenset[str], choices: Mapping[str, bool | None]) -> frozenset[str]:
    """Return what is to be done about locks; a choice of None leaves a word as it is."""
    return frozenset(
        word
        for word in LOCK_WORDS
        if (word in now if (choice := choices.get(word)) is None else choice)
    )


def for_doctor(command: str, harness: Harness) -> str:
    """Return a command of ours that asks for a sign of life and leaves nothing behind."""
    return _shape(harness).sub(lambda found: f"{found[0]} {DOCTOR}", command, count=1)


def program_of(command: str) -> tuple[str, str]:
    """Return the interpreter and the client that a command of ours names; empty where unclear.

    A compiled client is its own interpreter, and so is the launcher.
    """
    try:
        words = [word for word in shlex.split(command) if not _ASSIGNMENT.match(word)]
    except ValueError:
        return "", ""
    client = next((word for word in words if word.endswith(_CLIENTS)), "")
    return words[0] if words else "", client


def is_compiled(command: str) -> bool:
    """Return whether a command of ours runs a compiled client."""
    interpreter, client = program_of(command)
    if client.endswith(launcher.ENDING):
        return "/_hook_client'" in launcher.read(client)
    return bool(client) and interpreter == client


def _shape(harness: Harness) -> re.Pattern[str]:
    clients = "|".join(map(re.escape, _CLIENTS))
    return re.compile(rf"(?:{clients})'? {re.escape(harness.name)}(?= |$)")


# OpenCode runs no commands: it has a plugin, which is copied as it is shipped but for one line.
_PLUGIN_MARK = b"fleetd"
_PLUGIN_ARGS = b"const ARGS = []"
_PLUGIN_WORDS = re.compile(rb"^const ARGS = \[(.*)\]$", re.MULTILINE)


def plugin_path() -> Path:
    """Return where this installation has the plugin."""
    return Path(__file__).absolute().parent.parent / "plugins" / "opencode.js"


def shipped_plugin() -> bytes:
    """Return the plugin of this installation; raises InvalidState when it is not there."""
    path = plugin_path()
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidState(
            f"This installation has no plugin for OpenCode: {path}: {error.strerror}.",
            hint="Install fleetd again.",
        ) from error


def is_plugin(file: SettingsFile) -> bool:
    """Return whether a file is our plugin, of whatever version."""
    return file.data is not None and _PLUGIN_MARK in file.data[:1_000]


def plugin_words(file: SettingsFile) -> frozenset[str]:
    """Return what the plugin in a file does about locks."""
    found = _PLUGIN_WORDS.search(file.data or b"")
    return frozenset(word for word in LOCK_WORDS if found and f'"{word}"'.encode() in found[1])


def plugin_text(file: SettingsFile, choices: Mapping[str, bool | None]) -> bytes:
    """Return what belongs in the file; raises InvalidState when somebody else's is there.

    A choice of None leaves what is done about locks as it is.
    """
    if file.data is not None and not is_plugin(file):
        raise InvalidState(
            f"{file.path} is there already and is not fleetd's.",
            hint="Move it away or rename it, then try again. Nothing was changed.",
        )
    words = wanted_words(plugin_words(file), choices)
    listed = ", ".join(f'"{word}"' for word in LOCK_WORDS if word in words)
    return shipped_plugin().replace(_PLUGIN_ARGS, f"const ARGS = [{listed}]".encode())
