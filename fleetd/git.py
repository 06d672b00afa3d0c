"""Asks Git, without taking its locks and without running what a repository's own settings name."""

import os
import subprocess
from collections.abc import Mapping
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


class Slow(Exception):
    """Git did not answer in time."""


class Absent(Exception):
    """Git cannot be run."""


async def ask(
    directory: Path, *arguments: str, settings: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """Return what Git prints, None when it fails.

    Raises Slow when it takes too long, and Absent. Settings go by environment: a name may hold any
    character there, also an equals sign.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {**_NO_FETCHING, "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    with trio.move_on_after(SECONDS):
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
            raise Absent from None
        if done.returncode != 0:
            return None
        return done.stdout.decode("utf-8", "replace").rstrip("\n")
    raise Slow


async def _kill(process: trio.Process) -> None:
    """End a Git that is too slow at once: it only reads."""
    process.kill()
