"""What Git says about the state of a directory's repository, in sentences."""

import contextlib
from pathlib import Path

import trio

from . import git
from .domain.redaction.texts import redact

CHANGED_MAX = 20


async def repository(directory: str | None) -> tuple[str, ...]:
    """Return branch, commit and changed files of the repository a directory is in, as sentences.

    Empty where there is no repository, or Git does not tell it all in half a second: whoever
    waits for a briefing waits no longer than that.
    """
    if directory is None:
        return ()
    with trio.move_on_after(git.SECONDS), contextlib.suppress(git.Slow, git.Absent):
        return await _repository(Path(directory))
    return ()


async def _repository(place: Path) -> tuple[str, ...]:
    look = ("status", "--porcelain=v1", "--branch", "--ignore-submodules=all")
    status = await git.ask(place, *look, settings=await _without_filters(place))
    if status is None:
        return ()
    lines = status.splitlines()
    facts = [f"Branch: {lines[0].removeprefix('## ')}"] if lines else []
    if commit := await git.ask(place, "log", "-1", "--no-show-signature", "--format=%h %s"):
        facts.append(f"Commit: {commit}")
    changed = lines[1:]
    facts += [f"Changed: {line}" for line in changed[:CHANGED_MAX]]
    if len(changed) > CHANGED_MAX:
        facts.append(f"Changed: {len(changed) - CHANGED_MAX} more files")
    # A commit's subject is as free a text as any.
    return tuple(map(redact, facts))


async def _without_filters(directory: Path) -> dict[str, str]:
    """Return the settings that keep Git from running the content filters a repository names."""
    named = await git.ask(
        directory, "config", "--null", "--name-only", "--get-regexp", r"^filter\."
    )
    keys = dict.fromkeys(key for key in (named or "").split("\0") if key)
    return {key: "false" if key.endswith(".required") else "" for key in keys}
