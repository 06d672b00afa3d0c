"""Commands that resume a session of an agent CLI, or begin one with a first prompt.

Session IDs and prompts come from others. An ID must have the form of its CLI's IDs before it
becomes part of a command, and a shell gets only quoted text. This module imports neither argparse
nor the client, because ``attention`` and ``notify`` load it.
"""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState

from ..integrations.registry import HARNESSES, Harness

# The limit of Linux for one argument, including its final zero byte. macOS allows more.
ARGUMENT_BYTES = 131_072
_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")


class BadSessionId(InvalidState):
    """An ID does not have the form of its CLI's IDs; no command may name it."""


class CannotStart(InvalidState):
    """No command does this for this CLI."""


class ProgramMissing(InvalidState):
    """The executable of a CLI is not on the PATH; ``program`` names it."""


class PromptTooLong(InvalidState):
    """A first prompt does not fit into one argument of a command."""


class Launch(NamedTuple):
    """A command of an agent CLI: its words, its directory, and additions to its environment.

    The first word is the name of the executable, as on the PATH.
    """

    title: str
    argv: tuple[str, ...]
    directory: str | None = None
    presets: Mapping[str, str] = {}

    @property
    def program(self) -> str:
        """Return the name of the executable."""
        return self.argv[0]

    @property
    def shell_line(self) -> str:
        """Return the line to type into a shell."""
        presets = [f"{name}={quoted(value)}" for name, value in self.presets.items()]
        command = " ".join([*presets, *map(quoted, self.argv)])
        return f"{into(self.directory)} && {command}" if self.directory else command

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of this process with the additions of the launch."""
        place = {"PWD": self.directory} if self.directory else {}
        return {**os.environ, **place, **self.presets}

    def executable(self) -> str:
        """Return the path of the executable; raises ProgramMissing."""
        found = shutil.which(self.program)
        if found is None:
            raise ProgramMissing(
                f"{self.title} is not installed here: there is no executable {self.program!r} on"
                " the PATH.",
                hint=f"Install {self.title}, or add the directory of {self.program} to the PATH.",
                program=self.program,
            )
        # The directory changes before it runs.
        return os.path.abspath(found)  # noqa: PTH100 - its links stay


def into(directory: str) -> str:
    """Return the shell command that enters a directory, whatever its name is."""
    return f"cd {quoted(directory)}" if directory.startswith("/") else f"cd -- {quoted(directory)}"


def quoted(word: str) -> str:
    """Return a word quoted for a shell, with escapes for invisible characters.

    Users copy a shown line, so it contains nothing that a terminal would act on or leave out. bash
    and zsh read the escapes.
    """
    if word.isprintable():
        return shlex.quote(word)
    shown = (char if char.isprintable() and char not in "\\'" else _escaped(char) for char in word)
    return f"$'{''.join(shown)}'"


def _escaped(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def reopening(
    harness: str | None,
    session_id: str | None,
    directory: str | None = None,
    presets: Mapping[str, str] = {},
) -> Launch:
    """Return the command that resumes a session; raises CannotStart and BadSessionId."""
    cli = _cli(harness)
    if not cli.resume:
        raise CannotStart(f"fleetctl knows no command that opens a session of {cli.title} again.")
    if session_id is None:
        raise CannotStart(f"The id of the session of {cli.title} is unknown.")
    check_session_id(cli, session_id)
    return _launch(cli, cli.resume, session_id, directory, presets)


def beginning(
    harness: str | None,
    prompt: str,
    directory: str | None = None,
    presets: Mapping[str, str] = {},
) -> Launch:
    """Return the command for a first prompt; raises CannotStart and PromptTooLong."""
    cli = _cli(harness)
    if not cli.begin:
        raise CannotStart(f"fleetctl knows no command that begins a session of {cli.title}.")
    launch = _launch(cli, cli.begin, prompt.replace("\0", ""), directory, presets)
    longest = max(len(os.fsencode(word)) for word in launch.argv)
    if longest >= ARGUMENT_BYTES:
        raise PromptTooLong(
            f"The first prompt has {len(prompt.encode(errors='replace'))} bytes; a command takes"
            f" fewer than {ARGUMENT_BYTES}.",
            hint="Write the text into a file, and let the first prompt name that file.",
        )
    return launch


def check_session_id(cli: Harness, session_id: str) -> None:
    """Raise BadSessionId for what is not a session ID of this CLI."""
    if cli.session_id.fullmatch(session_id) is None:
        raise BadSessionId(
            f"{session_id[:80]!a} is no id of a session of {cli.title}, so no command names it.",
            hint=f"{cli.title} itself can list its sessions.",
        )


def starters() -> list[str]:
    """Return the names of the CLIs that can begin a session, for ``--to``."""
    return [name for name, each in HARNESSES.items() if each.begin]


def _cli(harness: str | None) -> Harness:
    cli = HARNESSES.get(harness or "")
    if cli is None:
        known = ", ".join(HARNESSES)
        raise CannotStart(
            f"fleetctl knows no agent CLI named {harness!a}."
            if harness
            else "The agent CLI of the session is unknown.",
            hint=f"Known are {known}.",
        )
    return cli


def _launch(
    cli: Harness,
    words: tuple[str, ...],
    value: str,
    directory: str | None,
    presets: Mapping[str, str],
) -> Launch:
    for name, preset in presets.items():
        if _NAME.fullmatch(name) is None or "\0" in preset:
            raise CannotStart(f"{name!a} cannot be set in the environment of {cli.title}.")
    argv = (cli.executables[0], *(word.replace("{}", value) for word in words))
    return Launch(cli.title, argv, directory, dict(presets))
