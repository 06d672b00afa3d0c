"""What the file system and Git say about a place: real paths, a repository's root and its state.

What a place is called beside its path is not known here.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from . import git
from .domain.redaction.texts import redact

T = TypeVar("T")
CHANGED_MAX = 20


def real_path(file: str, base: str | None) -> str | None:
    """Return a file's absolute path with ``..``, doubled slashes and symlinks resolved.

    None when the path is relative and there is no base to start from.
    """
    path = os.path.expanduser(file) if file.startswith("~/") else file  # noqa: PTH111
    if not path.startswith("/"):
        if base is None or not base.startswith("/"):
            return None
        path = f"{base}/{path}"
    return os.path.realpath(path)


def is_directory(file: str, paths: Iterable[str]) -> bool:
    """Whether a file is named as a directory, or one of the real paths that it may have is one."""
    named_so = file.rpartition("/")[2] in ("", ".", "..")
    return named_so or any(map(os.path.isdir, paths))


def project_root(directory: str | None) -> str | None:
    """Return the root of the repository that a directory is in, else the directory, made real."""
    if directory is None or not directory.startswith("/"):
        return None
    here = os.path.realpath(directory)
    return repository_root(here) or here


def repository_root(place: str) -> str | None:
    """Return the root of the repository around a real path, None where there is none."""
    # Plain strings: this is asked with every hook.
    while not os.path.lexists(f"{place}/.git"):
        place, _, name = place.rpartition("/")
        if not name:
            return None
    return place or "/"


def with_real_paths(request: T) -> T:
    """Return a request whose directories have their symlinks resolved.

    The same directory can go by several names, and rules compare names.
    """
    changes = {
        name: os.path.realpath(given)
        for name in ("cwd", "project_dir")
        if (given := getattr(request, name, None)) and given.startswith("/")
    }
    if not changes:
        return request
    changed: T = msgspec.structs.replace(request, **changes)  # type: ignore[type-var]
    return changed


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
