"""A person's machine on which the pages are tried: a home, a project, a shell at a terminal."""

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.managers import JOURNALCTL, LOGINCTL, SYSTEMCTL, Managers
from tests.support.processes import environment

PATIENCE_S = 45.0
PAUSE_S = 0.02
QUESTION = b" [y/N] "
ENDLESS = re.compile(r"^(.*?) +#[^#\n]*\b(?:until (Ctrl\+C)|q leaves)$", re.MULTILINE)
# Reads the names of scripts and runs each in itself, so that variables and directory stay.
_SHELL = """
trap 'printf "%s\\n" "$?" >&4' EXIT
while read -r script <&3; do
    . "$script" 3<&- 4>&-
    set +eu
    printf '0\\n' >&4
done
trap - EXIT
"""
_PROGRAMS = {
    "fleetctl": '-P -m fleetctl "$@"',
    "fleet": '-P -m fleetctl "$@"',
    "fleetd": '-P -m fleetd "$@"',
    "python3": '"$@"',
}


class CommandFailed(Exception):
    """A command ended with another status than 0; the text is what was seen."""


class ShellMachine:
    """A shell at a terminal, where every question is answered with yes."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self.home = home / "home"
        self._scripts = home / "scripts"
        self._scripts.mkdir()
        self._number = 0
        commands, self._commands = os.pipe()
        self._ends, ends = os.pipe()
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        try:
            self._shell = subprocess.Popen(
                ["bash", "-c", f"exec 3<&{commands} 4>&{ends} {commands}<&- {ends}>&-\n{_SHELL}"],
                env=env,
                cwd=self.home / "project",
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                pass_fds=(commands, ends),
                start_new_session=True,
            )
        finally:
            for fd in (commands, ends, theirs):
                os.close(fd)

    def run(self, text: str) -> str:
        """Run commands at the terminal; returns what it showed, raises Failed."""
        return self._source(f"set -euo pipefail\n{ENDLESS.sub(_ended, text)}\n")

    def output(self, command: str) -> str:
        """Run a command and return what it prints, standard error too, whatever its status."""
        out = self._scripts / "out"
        seen = self._source(f"{{\n{command}\n}} </dev/null >'{out}' 2>&1\n")
        return out.read_text("utf-8") + seen

    def save(self, name: str, text: str) -> None:
        """Save a file in the project."""
        (self.home / "project" / name).write_text(text, "utf-8")

    def close(self) -> None:
        """End the shell."""
        os.close(self._commands)
        with suppress(subprocess.TimeoutExpired):
            self._shell.wait(5)
        self._shell.kill()
        self._shell.wait()
        os.close(self._terminal)
        os.close(self._ends)

    def _source(self, text: str) -> str:
        self._number += 1
        script = self._scripts / f"{self._number}.sh"
        script.write_text(text, "utf-8")
        os.write(self._commands, f"{script}\n".encode())
        return self._watched()

    def _watched(self) -> str:
        """Return what the terminal shows until the script has ended."""
        seen = b""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ended, _, _ = select.select([self._ends], [], [], 0)
            while select.select([self._terminal], [], [], 0 if ended else PAUSE_S)[0]:
                try:
                    seen += os.read(self._terminal, 65_536)
                except OSError:  # how Linux tells that the shell has ended
                    break
                if seen.endswith(QUESTION):
                    os.write(self._terminal, b"y\n")
                    seen += b"\n"
            if ended:
                status = os.read(self._ends, 64).decode().strip()
                shown = seen.decode(errors="replace").replace("\r\n", "\n")
                if status == "0":
                    return shown
                raise CommandFailed(f"exit status {status}; the terminal shows:\n{shown}")
        raise CommandFailed(f"does not end; the terminal shows:\n{seen.decode(errors='replace')}")


def _ended(found: re.Match[str]) -> str:
    """Return a command that goes on as one that is ended after a while, and has to be there still.

    What draws on the whole screen takes Ctrl+C for a key, and wants the terminal for itself.
    """
    how = "--signal=INT 1" if found[2] else "--foreground 2"
    return f"timeout {how} bash -c {shlex.quote(found[1])} || [ $? = 124 ]; stty sane"


@contextmanager
def machine() -> Iterator[ShellMachine]:
    """Lay out a machine where nothing is installed but the programs; nothing outlives it."""
    # A short name: a socket's path has to fit into 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="docs-")).resolve()
    env = environment_of(home)
    made = ShellMachine(home, env)
    try:
        made.run("git init -q -b main . && git commit -q --allow-empty -m 'The first commit'")
        yield made
    finally:
        made.close()
        _end_all(f"HOME={made.home}")
        shutil.rmtree(home)


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of a machine that this lays out below a directory."""
    env = {k: v for k, v in environment(home).items() if not k.startswith(("FLEET_", "FLIGHTLINE"))}
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "NO_COLOR"):
        env.pop(name, None)
    managers = Managers(home)
    managers._fill["config"] = str(home / "home" / ".config")
    for program, body in (
        ("systemctl", SYSTEMCTL),
        ("loginctl", LOGINCTL),
        ("journalctl", JOURNALCTL),
    ):
        managers.have(program, body)
    for program, arguments in _PROGRAMS.items():
        (managers.bin / program).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n')
        (managers.bin / program).chmod(0o755)
    for directory in ("project", ".claude"):  # Alice has Claude Code
        (home / "home" / directory).mkdir()
    who = {"GIT_CONFIG_GLOBAL": "/dev/null"}
    for role in ("AUTHOR", "COMMITTER"):
        who |= {f"GIT_{role}_NAME": "Alice", f"GIT_{role}_EMAIL": "alice@example.org"}
    stages = str(Path(__file__).with_name("stages"))
    return env | who | {"PATH": managers.path, "STAGES": stages, "TERM": "xterm", "COLUMNS": "100"}


def _end_all(mark: str) -> None:
    """End what still runs in this machine's home, and nothing else."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def missing(text: str) -> str:
    """Return which program that a block names is not on this machine, or nothing."""
    wanted = re.findall(r"\b(nc|node|jq|socat|tmux)\b(?= )", text)
    return next((program for program in wanted if not shutil.which(program)), "")
