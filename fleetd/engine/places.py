"""What Git says about the state of a directory's repository, in sentences."""

import contextlib
from pathlib import Path

import trio

from ..domain.redaction.redact import redact
from ..host import git
from ..protocol.display import path, quote

CHANGED_MAX, WORDS_CHARS = 20, 120


async def repository(directory: str | None) -> tuple[str, ...]:
    """Return branch, commit and changed files of the repository a directory is in, as sentences.

    Empty where there is no repository, or Git does not tell it all in half a second: whoever
    waits for a briefing waits no longer than that.
    """
    if directory is None:
        return ()
    with trio.move_on_after(git.SECONDS), contextlib.suppress(git.GitSlow, git.GitAbsent):
        return await _repository(Path(directory))
    return ()


async def _repository(place: Path) -> tuple[str, ...]:
    look = ("status", "--porcelain=v1", "--branch", "--ignore-submodules=all")
    status = await git.ask(place, *look, settings=await _without_filters(place))
    if status is None:
        return ()
    lines = status.splitlines()
    facts = [_branch(lines[0])] if lines else []
    if commit := await git.ask(place, "log", "-1", "--no-show-signature", f"--format={_COMMIT}"):
        facts.append(_commit(commit))
    changed = lines[1:]
    facts += [f"Changed: {path(redact(line))}" for line in changed[:CHANGED_MAX]]
    if len(changed) > CHANGED_MAX:
        facts.append(f"Changed: {len(changed) - CHANGED_MAX} more files")
    return tuple(facts)


_COMMIT = "%h%x00%an%x00%s"
_UNBORN = "No commits yet on "


def _branch(line: str) -> str:
    """Tell a branch and what it follows, by the first line of Git's status, in quotes."""
    told = line.removeprefix("## ")
    # No name of a branch has a blank, and what stands behind it are Git's own words.
    if told.startswith(_UNBORN):
        return f"Branch: {_quoted(told.removeprefix(_UNBORN))}, no commits yet"
    names, _, rest = told.partition(" ")
    return f"Branch: {_quoted(names)} {rest}".rstrip()


def _commit(told: str) -> str:
    """Tell a commit's hash, author and subject; the latter two are as free texts as any."""
    name, author, subject = told.split("\0", 2)
    return f"Commit: {name} by {_quoted(author)}: {_quoted(subject)}"


def _quoted(text: str) -> str:
    return quote(redact(text), WORDS_CHARS)


async def _without_filters(directory: Path) -> dict[str, str]:
    """Return the settings that keep Git from running the content filters a repository names."""
    named = await git.ask(
        directory, "config", "--null", "--name-only", "--get-regexp", r"^filter\."
    )
    keys = dict.fromkeys(key for key in (named or "").split("\0") if key)
    return {key: "false" if key.endswith(".required") else "" for key in keys}
