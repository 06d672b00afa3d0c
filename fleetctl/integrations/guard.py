"""Guard: the hooks of Git that ask fleetd whose files a commit has; what was there runs first.

A hook that was there is renamed beside ours, which runs it first, and gets its name back with
``uninstall``. Nothing but a refusal stops a commit: not a daemon that is away, nor a fleetctl that
was removed.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState, NotFound

from .hook_command import quoted
from .installation import run_program, this_interpreter

_COMMANDS = {
    "pre-commit": "fleetctl guard check --hook",
    "prepare-commit-msg": 'fleetctl guard check --hook --message "$1"',
}
HOOKS = (*_COMMANDS,)
BEFORE = ".before-fleetd"
# What no other end of fleetctl has: a crash must not stop a commit.
REFUSED = 20
_MARK = "# fleetd guard:"
_MADE_DIRECTORY = "# The directory of hooks was made for it."
_TRAILER = "--trailer"
_GIT_S = 10


class HookFile(NamedTuple):
    """One of our hooks as it is in a repository."""

    name: str
    path: Path
    state: str
    """``installed``, ``old``, ``missing``, or ``other`` for a hook that is not ours."""
    before: bool
    """Whether a hook that was there before is kept beside it."""


class Guard:
    """The hooks of one repository, which its worktrees share."""

    def __init__(self, directory: Path) -> None:
        """Look at the repository around a directory; raises NotFound where there is none."""
        self.root = Path(_git(directory, "rev-parse", "--show-toplevel"))
        # Git resolves core.hooksPath, and the directory that worktrees share.
        self.hooks = self.root / _git(self.root, "rev-parse", "--git-path", "hooks")
        self.custom = bool(_git(self.root, "config", "--get", "core.hooksPath", empty=True))

    def files(self, *, trailer: bool | None = None) -> list[HookFile]:
        """Return the state of each hook; ``trailer`` None is as it is installed."""
        return [self._file(name, trailer) for name in HOOKS]

    def _file(self, name: str, trailer: bool | None) -> HookFile:
        path = self.hooks / name
        text = _text(path)
        wanted = self._script(name, trailer=self.trailer if trailer is None else trailer)
        if text is None:
            state = "missing"
        elif _MARK not in text:
            state = "other"
        else:
            state = "installed" if text == wanted and os.access(path, os.X_OK) else "old"
        return HookFile(name, path, state, os.path.lexists(f"{path}{BEFORE}"))

    @property
    def trailer(self) -> bool:
        """Whether commits of agents get a line with their session."""
        text = _text(self.hooks / HOOKS[1]) or ""
        return _MARK in text and _TRAILER in text

    @property
    def remark(self) -> str | None:
        """Return what a person should know of the directory of the hooks."""
        if not self.custom:
            return None
        if self.hooks.is_relative_to(self.root):
            return f"core.hooksPath is {self.hooks}: keep these hooks out of commits."
        return f"core.hooksPath is {self.hooks}: all repositories with this setting are guarded."

    def install(self, *, trailer: bool) -> list[HookFile]:
        """Write the hooks and return those that were not as they are now.

        Raises InvalidState for a hook that neither is ours nor can be kept.
        """
        changed = [each for each in self.files(trailer=trailer) if each.state != "installed"]
        for each in changed:
            if each.state == "other" and each.before:
                raise InvalidState(
                    f"{each.path} is not fleetd's, and {each.path.name}{BEFORE} is there already.",
                    hint="Another program replaced fleetd's hook. Remove one of the two, then try"
                    " again. Nothing was changed.",
                )
        made = not self.hooks.is_dir()
        self.hooks.mkdir(parents=True, exist_ok=True)
        for each in changed:
            mark = made or _MADE_DIRECTORY in (_text(each.path) or "")
            if each.state == "other":
                each.path.rename(f"{each.path}{BEFORE}")
            _write(each.path, self._script(each.name, trailer=trailer, made=mark))
        return changed

    def uninstall(self) -> list[HookFile]:
        """Remove the hooks, give those from before their names back; return what was ours."""
        ours = [each for each in self.files() if each.state in ("installed", "old")]
        made = any(_MADE_DIRECTORY in (_text(each.path) or "") for each in ours)
        for each in ours:
            if each.before:
                Path(f"{each.path}{BEFORE}").rename(each.path)
            else:
                each.path.unlink()
        if made and not any(self.hooks.iterdir()):
            self.hooks.rmdir()
        return ours

    def _script(self, name: str, *, trailer: bool, made: bool | None = None) -> str:
        python = quoted(this_interpreter("guard"))
        if made is None:
            made = _MADE_DIRECTORY in (_text(self.hooks / name) or "")
        command = _COMMANDS[name] + (f" {_TRAILER}" if trailer and name == HOOKS[1] else "")
        note = f"{_MADE_DIRECTORY}\n" if made else ""
        return f"""\
#!/bin/sh
{_MARK} keeps agents from committing each other's files.
# To remove it: fleetctl guard uninstall
{note}before="$0{BEFORE}"
if [ -x "$before" ]; then
    "$before" "$@" || exit $?
fi
python={python}
if [ ! -x "$python" ]; then
    echo "fleetd guard: $python is gone, so the commit was not checked." >&2
    exit 0
fi
"$python" -E -P -m {command}
[ $? -ne {REFUSED} ] || exit 1
"""


def _text(path: Path) -> str | None:
    """Return what a hook holds, None where there is none; raises InvalidState."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - through links
            return ""
        return path.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return "" if path.is_symlink() else None
    except OSError as error:
        raise InvalidState(
            f"{path} cannot be read: {error.strerror}.", hint="Correct that, then try again."
        ) from error


def _write(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.fleetd-new")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)


def _git(directory: Path, *words: str, empty: bool = False) -> str:
    """Return what Git says; raises NotFound outside of a repository, unless it may be empty."""
    if not directory.is_dir():
        raise NotFound(f"There is no directory {directory}.", hint="Name one: --repo DIR")
    try:
        told = run_program(["git", *words], timeout_s=_GIT_S, cwd=str(directory))
    except FileNotFoundError:
        raise InvalidState("Git is not installed.", hint="Install Git, then try again.") from None
    if told.returncode != 0 and not empty:
        raise NotFound(
            f"{directory} is in no working tree of Git.",
            hint="Change to a repository, or name one: fleetctl guard install --repo DIR",
        )
    return told.stdout.rstrip("\n")


def staged_files(root: Path) -> list[str]:
    """Return the files that differ from the commit before, as paths from the root.

    Of a merge only those that neither side has: what was merged is nobody's work in this tree.
    """
    files = _names(root)
    merged = run_program(
        ["git", "rev-parse", "-q", "--verify", "MERGE_HEAD"], timeout_s=_GIT_S, cwd=str(root)
    )
    if merged.returncode == 0:
        there = set(_names(root, "MERGE_HEAD"))
        files = [file for file in files if file in there]
    return files


def _names(root: Path, *commit: str) -> list[str]:
    words = ["git", "diff", "--cached", "--name-only", "--no-renames", "-z", *commit]
    told = run_program(words, timeout_s=_GIT_S, cwd=str(root))
    return [name for name in told.stdout.split("\0") if name]


def committed_since(root: Path, file: str, at_ms: int) -> bool:
    """Return whether a file was committed after a change of it: then what is staged is newer."""
    words = ["git", "log", "-1", "--format=%ct", "HEAD", "--", file]
    told = run_program(words, timeout_s=_GIT_S, cwd=str(root))
    return told.stdout.strip().isdigit() and int(told.stdout) * 1_000 > at_ms


def add_trailer(root: Path, message: str, session_id: str) -> None:
    """Add a line with the session to the message of a commit."""
    trailer = f"Fleet-Session: {session_id}"
    words = ["--in-place", "--if-exists", "addIfDifferent", "--trailer", trailer, message]
    run_program(["git", "interpret-trailers", *words], timeout_s=_GIT_S, cwd=str(root))
