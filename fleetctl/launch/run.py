"""Run of agent CLIs: in tmux windows, or in place of this process."""

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from typing import NoReturn

from fleetd.protocol.errors import InvalidState

from ..integrations.installation import run_program
from .commands import Launch

TMUX_S = 10
# The tmux session for new windows if this terminal is not in tmux.
SESSION = "fleet"
# tmux refuses a command above 16 KiB; a longer one goes into a file.
TMUX_BYTES = 8_000
# A window stays open after its CLI ends, in its directory, so that the last output can be read.
_IN_WINDOW = 'cd -- "$1" && shift && "$@"; exec "${SHELL:-/bin/sh}"'
# tmux expands "#" in the names of windows.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._@-]+")


class DirectoryGone(InvalidState):
    """The directory of a session no longer exists."""


class CannotRun(InvalidState):
    """The system does not run the executable."""


class TmuxFailed(InvalidState):
    """tmux is missing, or it refused."""


def check_directory(launch: Launch) -> None:
    """Raise DirectoryGone if the directory to run in does not exist."""
    if launch.directory is not None and not os.path.isdir(launch.directory):  # noqa: PTH112
        raise DirectoryGone(
            f"The directory {launch.directory} is not there any more.",
            hint="Move it back; if it was a work tree of Git, git worktree add makes it again.",
        )


def in_place(launch: Launch) -> NoReturn:
    """Become the CLI, which takes over this process, its terminal and its process ID.

    Raises ProgramMissing, DirectoryGone, and CannotRun where the system refuses.
    """
    executable = launch.executable()
    check_directory(launch)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if launch.directory is not None:
            os.chdir(launch.directory)
        os.execve(executable, launch.argv, launch.environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise CannotRun(f"{launch.title} cannot be started: {error.strerror}.") from error


def in_tmux(launches: Sequence[tuple[str, Launch]]) -> list[str]:
    """Open a window for each named launch, and return the places of the windows in tmux.

    The windows open in the tmux session of this terminal, else in one named ``fleet``. Every launch
    is checked before the first window opens. Raises ProgramMissing, DirectoryGone and TmuxFailed.
    """
    tmux = _tmux()
    commands = []
    for name, launch in launches:
        executable = launch.executable()
        check_directory(launch)
        commands.append((_NOT_IN_NAMES.sub("-", name)[:40] or SESSION, _words(launch, executable)))
    return [_open(tmux, name, words) for name, words in commands]


def attaching() -> str | None:
    """Return the command that shows the windows; None in a terminal that is already in tmux."""
    return None if os.environ.get("TMUX") else f"tmux attach -t {SESSION}"


def _tmux() -> str:
    found = shutil.which("tmux")
    if found is None:
        raise TmuxFailed(
            "tmux is not installed: there is no executable 'tmux' on the PATH.",
            hint="Install tmux, or use --print and type each line into a terminal.",
        )
    return found


def _words(launch: Launch, executable: str) -> list[str]:
    """Return the command of a window; neither a shell nor tmux interprets its words."""
    presets = [f"{name}={value}" for name, value in launch.presets.items()]
    words = [*(["env", *presets] if presets else []), executable, *launch.argv[1:]]
    words = ["/bin/sh", "-c", _IN_WINDOW, "sh", launch.directory or os.getcwd(), *words]  # noqa: PTH109
    if sum(len(os.fsencode(word)) + 1 for word in words) <= TMUX_BYTES:
        return words
    # The shell that reads the file removes it. It is private: it may contain a whole briefing.
    own = os.environ.get("XDG_RUNTIME_DIR")
    place = own if own and os.path.isdir(own) else None  # noqa: PTH112
    descriptor, path = tempfile.mkstemp(prefix="fleet-", dir=place)
    with os.fdopen(descriptor, "w", errors="surrogateescape") as file:
        file.write(f'rm -f -- "$0"\nexec {shlex.join(words)}\n')
    return ["/bin/sh", path]


def _open(tmux: str, name: str, words: Sequence[str]) -> str:
    """Open one window and return its place, such as ``fleet:2``."""
    options = ("-P", "-F", "#{session_name}:#{window_index}", "-n", name)
    if os.environ.get("TMUX"):
        return _ask(tmux, "new-window", "-d", *options, "--", *words)
    try:
        _ask(tmux, "has-session", "-t", f"={SESSION}")
    except TmuxFailed:
        return _ask(tmux, "new-session", "-d", "-s", SESSION, *options, "--", *words)
    return _ask(tmux, "new-window", "-d", "-t", f"={SESSION}:", *options, "--", *words)


def _ask(tmux: str, *words: str) -> str:
    try:
        done = run_program([tmux, *words], timeout_s=TMUX_S)
    except (OSError, TimeoutError) as error:
        raise TmuxFailed(f"tmux does not answer: {error}") from error
    if done.returncode != 0:
        raise TmuxFailed(f"tmux refused: {done.stderr.strip() or 'it does not say why'}.")
    return done.stdout.strip()
