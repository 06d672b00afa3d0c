"""Hook command: the line that a harness runs for each event, or a plugin for OpenCode.

The line stays the same across upgrades: Codex trusts a hook by the hash of its command.
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

# What a hook before an edit does about locks: deny the edit, and lock the file.
ENFORCE = "enforce-locks"
AUTO = "auto-locks"
LOCK_WORDS = (ENFORCE, AUTO)
DOCTOR = "doctor"
NO_SPOOL = "no-spool"
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_CLIENTS = ("/fleetctl/hook.py", "/fleetctl/_hook_client", launcher.ENDING)
TRY_S = 5


class Installation(NamedTuple):
    """The parts of this installation that go into a command.

    ``compiled`` is the client in C, empty where none was built or it does not run here.
    ``launcher`` runs one of the two clients; without a launcher, the command runs it.
    """

    interpreter: str
    client: str
    assignments: str = ""
    compiled: str = ""
    launcher: str = ""

    @property
    def launcher_text(self) -> str:
        """Return the text of the launcher."""
        compiled = quoted(self.compiled) if self.compiled else ""
        python = f"{quoted(self.interpreter)} -I -S {quoted(self.client)}"
        return launcher.text(compiled, python, self.assignments)

    @property
    def launcher_texts(self) -> set[str]:
        """Return every text of a working launcher: the compiled client may be left out."""
        return {self.launcher_text, self._replace(compiled="").launcher_text}

    def commands(
        self, harness: Harness, event: HookEvent, *, words: frozenset[str] = frozenset()
    ) -> set[str]:
        """Return every working command for an event of a harness."""
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

        It is a line for a shell or, if ``direct``, a program and its arguments. ``words`` are the
        wanted ``LOCK_WORDS``.
        """
        arguments = [harness.name]
        if event.name == harness.enforces_at:
            arguments += [word for word in LOCK_WORDS if word in words]
        if event.unspooled:
            arguments.append(NO_SPOOL)
        if event.word:
            arguments.append(event.word)
        if self.launcher:
            line = f"{quoted(self.launcher)} {' '.join(arguments)}"
            return line if direct else f"{line} {harness.ending}"
        program = quoted(self.compiled)
        if not self.compiled:
            program = f"{quoted(self.interpreter)} -I -S {quoted(self.client)}"
        return f"{self.assignments}{program} {' '.join(arguments)} {harness.ending}"


def this_installation() -> Installation:
    """Return the parts of a command of this installation; raises InvalidState."""
    # The hook reads no configuration: the command must name a socket that is not the default.
    without_socket = {name: value for name, value in os.environ.items() if name != "FLEET_SOCKET"}
    socket = configured_socket(without_socket)
    assignments = "" if socket is None else f"FLEET_SOCKET={quoted(str(socket))} "
    in_c = client().with_name("_hook_client")
    compiled = str(in_c) if runs(in_c) else ""
    place = str(launcher.path())
    return Installation(this_interpreter("hook"), str(client()), assignments, compiled, place)


def client() -> Path:
    """Return the Python hook client of this installation."""
    return Path(__file__).absolute().parent.parent / "hook.py"


def runs(compiled: Path) -> bool:
    """Return whether a compiled client exists and works: another machine may have built it."""
    if not os.access(compiled, os.X_OK):
        return False
    # Imported here: most users of this module never need it.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="fleet-try-") as directory:
        nowhere = {"XDG_STATE_HOME": directory, "FLEET_SOCKET": f"{directory}/none"}
        try:
            run_program([str(compiled)], timeout_s=TRY_S, env={**os.environ, **nowhere})
        except OSError:
            return False
        return any(Path(directory).rglob("*.json"))


def quoted(text: str) -> str:
    """Return a text as one shell word, always quoted, so that its form never changes."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def is_ours(command: object, harness: Harness) -> bool:
    """Return whether a command runs fleetd's hook for this harness, from any installation."""
    return isinstance(command, str) and _shape(harness).search(command) is not None


def lock_words(command: str) -> frozenset[str]:
    """Return what a command of ours does about locks."""
    return frozenset(LOCK_WORDS) & {*command.split()}


def wanted_words(now: frozenset[str], choices: Mapping[str, bool | None]) -> frozenset[str]:
    """Return the wanted lock words; a choice of None leaves a word unchanged."""
    return frozenset(
        word
        for word in LOCK_WORDS
        if (word in now if (choice := choices.get(word)) is None else choice)
    )


def for_doctor(command: str, harness: Harness) -> str:
    """Return a command of ours as a test run, which leaves nothing behind."""
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


# OpenCode runs no commands. It gets a plugin, which is copied unchanged except for one line.
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
    """Return whether a file is our plugin, of any version."""
    return file.data is not None and _PLUGIN_MARK in file.data[:1_000]


def plugin_words(file: SettingsFile) -> frozenset[str]:
    """Return what the plugin in a file does about locks."""
    found = _PLUGIN_WORDS.search(file.data or b"")
    return frozenset(word for word in LOCK_WORDS if found and f'"{word}"'.encode() in found[1])


def plugin_text(file: SettingsFile, choices: Mapping[str, bool | None]) -> bytes:
    """Return the plugin text for a file; raises InvalidState when the file is not ours.

    A choice of None leaves its lock word unchanged.
    """
    if file.data is not None and not is_plugin(file):
        raise InvalidState(
            f"{file.path} is there already and is not fleetd's.",
            hint="Move it away or rename it, then try again. Nothing was changed.",
        )
    words = wanted_words(plugin_words(file), choices)
    listed = ", ".join(f'"{word}"' for word in LOCK_WORDS if word in words)
    return shipped_plugin().replace(_PLUGIN_ARGS, f"const ARGS = [{listed}]".encode())
