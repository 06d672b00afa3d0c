"""Guard: the Git hooks that ask fleetd whose files a commit contains.

An existing hook is renamed beside ours, which runs it first. ``uninstall`` gives it its name back.
Many hooks look at ``$0``: a shell script runs with the name that it had, any other program through
a link of that name. Only a refusal stops a commit. A daemon that is away does not, nor does a
fleetctl that was removed.

Agents that work in one tree share its index: one can stage a file while another one commits. So
the message hook leaves a marker with the process ID of Git. Git runs the reference hook when the
commit exists, and that hook checks what the commit really contains.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState, NotFound, Storage

from .hook_command import quoted
from .installation import run_program, this_interpreter

_STAGED, _MESSAGE, _REFERENCE = HOOKS = (
    "pre-commit",
    "prepare-commit-msg",
    "reference-transaction",
)
_COMMANDS = {
    _STAGED: "fleetctl guard check --hook",
    _MESSAGE: 'fleetctl guard check --hook --message "$1"',
    _REFERENCE: 'fleetctl guard check --hook --commit "$1" "$2"',
}
BEFORE = ".before-fleetd"
_LINKS = "before-fleetd"
_SHELLS = ("sh", "bash", "dash", "ksh")
# Exit statuses that fleetctl uses for nothing else: a crash must not stop a commit.
REFUSED, BY_AGENT = 20, 21
_MARKER = ".fleetd-guard-"
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
    runs_other: bool
    """Whether a hook that is not ours runs. Git and our hooks skip one that is not executable."""


class Guard:
    """The hooks of one repository, which its worktrees share."""

    def __init__(self, directory: Path) -> None:
        """Look at the repository around a directory; raises NotFound where there is none."""
        self.root = Path(_git(directory, "rev-parse", "--show-toplevel"))
        # Git resolves core.hooksPath, and the directory that worktrees share.
        self.hooks = self.root / _git(self.root, "rev-parse", "--git-path", "hooks")
        self.custom = bool(_git(self.root, "config", "--get", "core.hooksPath", empty=True))

    def files(self, *, trailer: bool | None = None) -> list[HookFile]:
        """Return the state of each hook; ``trailer=None`` means as installed."""
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
        kept = Path(f"{path}{BEFORE}")
        before = os.path.lexists(kept)
        theirs = kept if before else path
        runs = (before or state == "other") and theirs.is_file() and os.access(theirs, os.X_OK)
        return HookFile(name, path, state, before, runs)

    @property
    def trailer(self) -> bool:
        """Return whether commits of agents get a line with their session."""
        text = _text(self.hooks / _MESSAGE) or ""
        return _MARK in text and _TRAILER in text

    @property
    def remark(self) -> str | None:
        """Return what a user should know about the directory of the hooks."""
        if not self.custom:
            return None
        if self.hooks.is_relative_to(self.root):
            return (
                f"core.hooksPath is {self.hooks}: keep these hooks out of commits. Other worktrees"
                " have their own: install the guard there, too."
            )
        return f"core.hooksPath is {self.hooks}: all repositories with this setting are guarded."

    def install(self, *, trailer: bool) -> list[HookFile]:
        """Write the hooks and return those that changed, in their earlier state.

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
        with _writing(self.hooks):
            self.hooks.mkdir(parents=True, exist_ok=True)
            for each in changed:
                if each.state == "other":
                    self._keep(each.path)
                _write(each.path, self._script(each.name, trailer=trailer, made=made))
        return changed

    def _keep(self, path: Path) -> None:
        """Rename the existing hook; one that is no shell script gets a link with its name."""
        before = path.rename(f"{path}{BEFORE}")
        if not _is_shell_script(before):
            links = self.hooks / _LINKS
            links.mkdir(exist_ok=True)
            link = links / path.name
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..", before.name))

    def uninstall(self) -> list[HookFile]:
        """Remove our hooks, give the earlier ones their names back, and return ours."""
        ours = [each for each in self.files() if each.state in ("installed", "old")]
        made = any(_MADE_DIRECTORY in (_text(each.path) or "") for each in ours)
        links = self.hooks / _LINKS
        with _writing(self.hooks):
            for each in ours:
                if each.before:
                    Path(f"{each.path}{BEFORE}").rename(each.path)
                else:
                    each.path.unlink()
                (links / each.name).unlink(missing_ok=True)
            for directory in (links, self.hooks) if made else (links,):
                if directory.is_dir() and not any(directory.iterdir()):
                    directory.rmdir()
        return ours

    def _script(self, name: str, *, trailer: bool, made: bool = False) -> str:
        """Return a hook's text; it keeps a note if its directory was ``made`` for the hooks."""
        python = quoted(this_interpreter("guard"))
        made = made or _MADE_DIRECTORY in (_text(self.hooks / name) or "")
        command = _COMMANDS[name] + (f" {_TRAILER}" if trailer and name == _MESSAGE else "")
        shells = " | ".join(rf"'#!'*[/\ ]{shell}\ *" for shell in _SHELLS)
        begin, lines = "", ""
        if name != _STAGED:
            begin = f"marker={self._markers()}/{_MARKER}\n"
        if name == _REFERENCE:
            lines = """printf '%s\\n' "$lines" | """
            begin += _READ_LINES
        return _SCRIPT.format(
            mark=_MARK,
            note=f"{_MADE_DIRECTORY}\n" if made else "",
            before=BEFORE,
            begin=begin,
            shells=shells,
            lines=lines,
            links=_LINKS,
            check=_CHECKS[name].format(
                python=_PYTHON.format(python=python),
                command=f'"$python" -E -P -m {command}',
                refused=REFUSED,
                by_agent=BY_AGENT,
            ),
        )

    def _markers(self) -> str:
        """Return the marker directory as a shell word; no marker may be in a work tree."""
        common = self.root / _git(self.root, "rev-parse", "--git-common-dir")
        if self.hooks.is_relative_to(self.root) and not self.hooks.is_relative_to(common):
            return quoted(str(common.resolve()))
        return "${0%/*}"


_SCRIPT = """\
#!/bin/sh
{mark} keeps agents from committing each other's files.
# To remove it: fleetctl guard uninstall
{note}before="$0{before}"
{begin}if [ -f "$before" ] && [ -x "$before" ]; then
    read -r first 2>/dev/null <"$before"
    case "$first " in
    {shells})
        {lines}${{first#??}} -c '. "$0{before}"' "$0" "$@" || exit $?
        ;;
    *)
        named="${{0%/*}}/{links}/${{0##*/}}"
        [ -x "$named" ] || named=$before
        {lines}"$named" "$@" || exit $?
        ;;
    esac
fi
{check}"""
# Git runs this hook with every change of a branch or a tag; nearly always there is nothing to do.
_READ_LINES = """\
marker=$marker$PPID
[ -e "$before" ] || [ -e "$marker" ] || exit 0
lines=$(cat)
"""
_PYTHON = """\
python={python}
if [ ! -x "$python" ]; then
    echo "fleetd guard: $python is gone, so the commit was not checked." >&2
    exit 0
fi
"""
_CHECKS = {
    _STAGED: """\
{python}{command}
[ $? -ne {refused} ] || exit 1
""",
    # The marker of an ended process belongs to a commit that was not made.
    _MESSAGE: """\
for old in "$marker"*; do
    kill -0 "${{old##*-}}" 2>/dev/null || rm -f "$old"
done
{python}{command}
case $? in
{refused}) exit 1 ;;
{by_agent}) {{ : >"$marker$PPID"; }} 2>/dev/null ;;
esac
exit 0
""",
    _REFERENCE: """\
[ "$1" = prepared ] && [ -e "$marker" ] || exit 0
rm -f "$marker"
set -- $lines
{python}{command}
[ $? -ne {refused} ] || exit 1
""",
}


def _is_shell_script(path: Path) -> bool:
    """Return whether our hooks run a file by its shell; they look for the same words each time."""
    try:
        first = path.read_bytes()[:200].split(b"\n")[0].decode("ascii", "replace")
    except OSError:
        return False
    words = first.removeprefix("#!").replace("/", " ").split() if first.startswith("#!") else []
    return any(word in _SHELLS for word in words)


def _text(path: Path) -> str | None:
    """Return the text of a hook, None where there is none; raises InvalidState."""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116 - through links
            raise InvalidState(
                f"{path} is a directory, and Git expects a program there.",
                hint="Rename it, then try again.",
            )
        return path.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return "" if path.is_symlink() else None
    except OSError as error:
        raise InvalidState(
            f"{path} cannot be read: {error.strerror}.", hint="Correct that, then try again."
        ) from error


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Raise Storage for what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise Storage(
            f"{error.filename or place} cannot be changed: {error.strerror}.",
            hint="Correct that, then try again.",
        ) from error


def _write(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.fleetd-new")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)


def _git(directory: Path, *words: str, empty: bool = False) -> str:
    """Return Git's output; raises NotFound outside of a repository, unless it may be empty."""
    if not directory.is_dir():
        raise NotFound(f"There is no directory {directory}.", hint="Name one: --repo DIR")
    try:
        result = run_program(["git", *words], timeout_s=_GIT_S, cwd=str(directory))
    except FileNotFoundError:
        raise InvalidState("Git is not installed.", hint="Install Git, then try again.") from None
    if result.returncode != 0 and not empty:
        raise NotFound(
            f"{directory} is in no working tree of Git.",
            hint="Change to a repository, or name one: fleetctl guard install --repo DIR",
        )
    return result.stdout.rstrip("\n")


def staged_files(root: Path) -> list[str]:
    """Return the files that differ from the previous commit, as paths from the root.

    For a merge, only files that differ from every side count: what was merged is nobody's work in
    this tree.
    """
    words = ("diff", "--cached", "--ignore-submodules=none")
    path = root / _git(root, "rev-parse", "--git-path", "MERGE_HEAD")
    merged = path.read_text().split() if path.exists() else []
    return _in_all([_names(root, *words), *(_names(root, *words, side) for side in merged)])


def committed_files(root: Path, before: str, commit: str) -> list[str]:
    """Return the files that a commit changes, compared with the previous one on the branch.

    For a merge, only files that differ from every side count. ``before`` is all zeros for a first
    commit.
    """
    words = ("diff-tree", "-r", "--no-commit-id")
    if not before.strip("0"):
        return _names(root, *words, "--root", commit)
    merged = _run(root, "rev-list", "--parents", "-n1", commit).split()[2:]
    return _in_all([_names(root, *words, side, commit) for side in (before, *merged)])


def _run(root: Path, *words: str) -> str:
    """Return Git's output, whatever its exit status."""
    return run_program(["git", *words], timeout_s=_GIT_S, cwd=str(root)).stdout


def _names(root: Path, *words: str) -> list[str]:
    """Return the file names that a Git command lists."""
    output = _run(root, *words, "--name-only", "--no-renames", "-z")
    return [name for name in output.split("\0") if name]


def _in_all(lists: list[list[str]]) -> list[str]:
    """Return the names in the first list that all other lists contain."""
    first, *others = lists
    there = set(first).intersection(*others)
    return [name for name in first if name in there]


def has_commit(root: Path) -> bool:
    """Return whether the branch has a commit already."""
    return bool(_run(root, "rev-parse", "-q", "--verify", "HEAD"))


def committed_at(root: Path, since_ms: int) -> dict[str, int]:
    """Return when files were committed, in ms, by the newest commit of each since a time.

    This is the time when the commit was first made: amending it adds nothing newer to a file.
    """
    since = f"--since=@{since_ms // 1_000}"
    output = _run(root, "log", "--name-only", "--no-renames", "-z", "--format=%x01%at", since)
    found: dict[str, int] = {}
    at_ms = 0
    for field in output.split("\0"):
        time, name = field.removeprefix("\x01"), field.removeprefix("\n")
        if field.startswith("\x01") and time.isdigit():
            at_ms = int(time) * 1_000
        elif name:
            found[name] = max(found.get(name, 0), at_ms)
    return found


def files_behind(root: Path, files: list[str], commit: str | None) -> set[str]:
    """Return the files whose content in a commit, or else in the index, differs from the disk.

    They were changed after they were staged, or were taken out of the index.
    """
    differs = ["diff", "--name-only", "--no-renames", "-z", *([commit] if commit else [])]
    there = ["ls-tree", "--name-only", "-z", commit] if commit else ["ls-files", "-z"]
    changed, known = (
        _run(root, "--literal-pathspecs", *words, "--", *files).split("\0")
        for words in (differs, there)
    )
    gone = {each for each in files if each not in known and os.path.lexists(root / each)}
    return gone.union(changed)


def add_trailer(root: Path, message: str, session_id: str) -> None:
    """Add a line with the session to the message of a commit."""
    trailer = f"Fleet-Session: {session_id}"
    words = ("--in-place", "--if-exists", "addIfDifferent", "--trailer", trailer, message)
    _run(root, "interpret-trailers", *words)
