"""What the file system and Git say about a place: real paths, lock keys, a repository's state.

Git is asked without taking locks and without running what a repository's own settings name.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

_GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
)
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
    """
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

    Empty where there is no repository, or Git does not answer in time.
    """
    if directory is None:
        return ()
    place = Path(directory)
    harmless = await _without_filters(place)
    status = await _git(
        place, *harmless, "status", "--porcelain=v1", "--branch", "--ignore-submodules=all"
    )
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
    return tuple(facts)


async def _without_filters(directory: Path) -> list[str]:
    """Return the options that keep Git from running the content filters a repository names."""
    named = await _git(directory, "config", "--name-only", "--get-regexp", r"^filter\.")
    keys = dict.fromkeys((named or "").splitlines())
    off = [f"{key}={'false' if key.endswith('.required') else ''}" for key in keys]
    return [option for setting in off for option in ("-c", setting)]


async def _git(directory: Path, *arguments: str) -> str | None:
    """Return what Git prints, None when it fails or takes too long.

    Options of Git itself may stand before its command.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    with trio.move_on_after(GIT_SECONDS):
        try:
            done = await trio.run_process(
                [*_GIT, "-C", str(directory), *arguments],
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                check=False,
                env=env,
            )
        except OSError:
            return None
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace").rstrip("\n")
    return None
