"""The two arms of a trial: one session gets its briefing, the other one gets none."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Literal, get_args

from .clis import Failed

Arm = Literal["on", "off"]
ARMS: tuple[Arm, ...] = get_args(Arm)
_SETTINGS_S = 60


def switch_on(cli: str, env: Mapping[str, str]) -> None:
    """Connect a CLI to fleetd, as a person does; raises Failed."""
    _fleetctl(env, "hooks", "install", cli, "--yes")


def switch_off(cli: str, env: Mapping[str, str]) -> None:
    """See that the session gets no briefing; called between two prompts, before the compaction.

    It takes the hooks away, so nothing of fleetd reaches the session from here on, and fleetd
    records nothing more. Put another means here, and nothing else has to change. Raises Failed.
    """
    _fleetctl(env, "hooks", "uninstall", cli, "--yes")


def _fleetctl(env: Mapping[str, str], *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", *words],
        env=env,
        check=False,
        timeout=_SETTINGS_S,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Failed(f"fleetctl {' '.join(words)}: {done.stderr.strip()}")
