"""The two arms of a trial: one session gets its briefing, the other one gets none."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Literal, get_args

from ...fleet import Fleet
from .clis import Failed

Arm = Literal["on", "off"]
ARMS: tuple[Arm, ...] = get_args(Arm)
_SETTINGS_S = 60


def switch_on(cli: str, env: Mapping[str, str]) -> None:
    """Connect a CLI to fleetd, as a user does; raises Failed."""
    _fleetctl(env, "hooks", "install", cli, "--yes")


def switch_off(fleet: Fleet) -> None:
    """Switch the session's briefing off; called between two prompts, before the compaction.

    The hooks stay, and fleetd records the session until its end. Raises FleetError.
    """
    for mission in fleet.call("mission.list")["missions"]:
        fleet.call("mission.update", mission_id=mission["id"], briefing="off")


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
