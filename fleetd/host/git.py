"""Git queries that take no locks and run no program that a repository's own settings name."""

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
# Missing objects are not fetched, because a repository's settings name the programs that fetch. The
# first variable forbids it where Git knows it; the second leaves no protocol to fetch by.
_NO_FETCHING = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
SECONDS = 0.5
# How long a killed Git may take to end. A Git blocked by a file system ends when that returns.
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

    Raises GitSlow when it takes too long, and GitAbsent. Settings are passed in the environment,
    where a name may contain any character, even an equals sign.
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
    """Run Git on this thread, which is abandoned when Git takes too long.

    The program is searched for before the start, because a start blocks the whole process.
    """
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise GitAbsent
    try:
        process = subprocess.Popen(  # noqa: S603 - it is Git, without a shell
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
    """Kill a slow Git immediately: it only reads.

    If it does not end even then, the next call for a slow Git after its end reaps it.
    """
    process.kill()
    _left_behind.add(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_S)
    _left_behind.difference_update([each for each in [*_left_behind] if each.poll() is not None])
    if process.stdout is not None:
        process.stdout.close()
