"""What the file system and Git say about a place: real paths, lock keys, a repository's state.

Git is asked without taking locks and without running what a repository's own settings name.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec
import trio

from .domain.redaction.texts import redact
from .wire.errors import Unavailable

_GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
)
# What a repository lacks is not fetched: the programs that fetch are its settings' to name. The
# first says so where Git knows it, the second leaves no protocol to fetch by.
_NO_FETCHING = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
_CREDENTIALS = re.compile(r"://[^/@]*@")
T = TypeVar("T")
GIT_SECONDS = 0.5
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


def project_root(directory: str | None) -> str | None:
    """Return the root of the repository that a directory is in, else the directory, made real."""
    if directory is None or not directory.startswith("/"):
        return None
    here = place = os.path.realpath(directory)
    # Plain strings: this is asked with every hook.
    while not os.path.lexists(f"{place}/.git"):
        place, _, name = place.rpartition("/")
        if not name:
            return here
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


async def project_key(path: str) -> str:
    """Return a lock key that all worktrees of a repository share; the path where there is none.

    The key names the repository (its remote, else its common directory) and the path inside it.
    Raises Unavailable when Git is too slow to say: by another key two could hold one file.
    """
    try:
        return await _project_key(path)
    except _Slow:
        raise Unavailable(
            f"Git did not say in {GIT_SECONDS} s which repository {path} belongs to.",
            hint="Try again; a mission without lock_scope project needs no Git for its locks.",
        ) from None


async def _project_key(path: str) -> str:
    # The file's directory may still have to be made; Git answers for one that is there.
    folder = next(parent for parent in Path(path).parents if parent.is_dir())
    top = await _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return path
    remote = await _git(folder, "config", "--get", "remote.origin.url")
    common = await _git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    name = _CREDENTIALS.sub("://", remote) if remote else common
    return f"project:{name}:{_inside(path, top)}"


def _inside(path: str, top: str) -> str:
    return os.path.relpath(path, os.path.realpath(top))


async def repository(directory: str | None) -> tuple[str, ...]:
    """Return branch, commit and changed files of the repository a directory is in, as sentences.

    Empty where there is no repository, or Git does not tell it all in half a second: whoever
    waits for a briefing waits no longer than that.
    """
    if directory is None:
        return ()
    with trio.move_on_after(GIT_SECONDS), contextlib.suppress(_Slow):
        return await _repository(Path(directory))
    return ()


async def _repository(place: Path) -> tuple[str, ...]:
    look = ("status", "--porcelain=v1", "--branch", "--ignore-submodules=all")
    status = await _git(place, *look, settings=await _without_filters(place))
    if status is None:
        return ()
    lines = status.splitlines()
    facts = [f"Branch: {lines[0].removeprefix('## ')}"] if lines else []
    if commit := await _git(place, "log", "-1", "--no-show-signature", "--format=%h %s"):
        facts.append(f"Commit: {commit}")
    changed = lines[1:]
    facts += [f"Changed: {line}" for line in changed[:CHANGED_MAX]]
    if len(changed) > CHANGED_MAX:
        facts.append(f"Changed: {len(changed) - CHANGED_MAX} more files")
    # A commit's subject is as free a text as any.
    return tuple(map(redact, facts))


async def _without_filters(directory: Path) -> dict[str, str]:
    """Return the settings that keep Git from running the content filters a repository names."""
    named = await _git(directory, "config", "--null", "--name-only", "--get-regexp", r"^filter\.")
    keys = dict.fromkeys(key for key in (named or "").split("\0") if key)
    return {key: "false" if key.endswith(".required") else "" for key in keys}


class _Slow(Exception):
    """Git did not answer in time."""


async def _git(
    directory: Path, *arguments: str, settings: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """Return what Git prints, None when it fails; raises _Slow when it takes too long.

    Settings go by environment: a name may hold any character there, also an equals sign.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {**_NO_FETCHING, "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    with trio.move_on_after(GIT_SECONDS):
        try:
            done = await trio.run_process(
                [*_GIT, "-C", str(directory), *arguments],
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                check=False,
                env=env,
                deliver_cancel=_kill,
            )
        except OSError:
            return None
        if done.returncode != 0:
            return None
        return done.stdout.decode("utf-8", "replace").rstrip("\n")
    raise _Slow


async def _kill(process: trio.Process) -> None:
    """End a Git that is too slow at once: it only reads."""
    process.kill()
