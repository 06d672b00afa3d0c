"""Asks Git, without taking its locks and without running what a repository's own settings name."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import trio

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
SECONDS = 0.5
# How long a Git that was killed may take to end: one that a file system holds ends when that does.
_LAST_S = 0.1
AT_ONCE = 8
_left_behind: set[subprocess.Popen[bytes]] = set()
_places: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("git")


class GitSlow(Exception):
    """Git did not answer in time."""


class GitAbsent(Exception):
    """Git cannot be run."""


async def ask(
    directory: Path, *arguments: str, settings: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """Return what Git prints, None when it fails.

    Raises GitSlow when it takes too long, and GitAbsent. Settings go by environment: there a name
    may hold any character, also an equals sign.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {**_NO_FETCHING, "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    command = [*_GIT, "-C", str(directory), *arguments]
    with trio.move_on_after(SECONDS):
        return await trio.to_thread.run_sync(
            partial(_run, command, env, SECONDS), abandon_on_cancel=True, limiter=_limiter()
        )
    raise GitSlow


def _limiter() -> trio.CapacityLimiter:
    try:
        return _places.get()
    except LookupError:
        _places.set(limiter := trio.CapacityLimiter(AT_ONCE))
        return limiter


def _run(command: Sequence[str], env: Mapping[str, str], seconds: float) -> str | None:
    """Run Git on this thread, which is nobody's any more when it takes too long.

    It is looked for here, and not while it is started: until then the whole process stands still.
    """
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise GitAbsent
    try:
        process = subprocess.Popen(  # noqa: S603 - of Git, and no shell reads it
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )
    except OSError:
        raise GitAbsent from None
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        raise GitSlow from None
    if process.returncode != 0:
        return None
    return out.decode("utf-8", "replace").rstrip("\n")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a Git that is too slow at once: it only reads.

    One that not even this ends is seen off when it does, by who is too slow next.
    """
    process.kill()
    _left_behind.add(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_S)
    _left_behind.difference_update([each for each in [*_left_behind] if each.poll() is not None])
    if process.stdout is not None:
        process.stdout.close()
