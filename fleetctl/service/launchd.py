"""launchd: the agent that runs fleetd on macOS.

launchd has no setting for an exit status that means "do not retry", so it waits between retries.
"""

import os
import shutil
import time
from pathlib import Path

from fleetd.protocol.errors import InvalidState

from ..integrations import config_file
from . import manager, process
from .manager import ServiceState, UnitFile, plan_unit_file, with_digest_line
from .process import END_S, PAUSE_S
from .spec import ServiceSpec

KIND = "launchd"
TITLE = "launchd agent"
LABEL = "local.fleetd"
_THROTTLE_S = 10


def is_here() -> bool:
    """Return whether this machine has launchd."""
    return shutil.which("launchctl") is not None


def runs() -> bool:
    """Return whether the user's launchd session answers: there is none over ssh."""
    return manager.succeeds("launchctl", "print", _domain())


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _target() -> str:
    return f"{_domain()}/{LABEL}"


def file() -> Path:
    """Return the path of the agent's file."""
    return Path.home() / "Library/LaunchAgents" / f"{LABEL}.plist"


def rendered(spec: ServiceSpec) -> str:
    """Return the property list of an installation."""
    import plistlib

    log = str(process.log_file())
    document = plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(spec.command),
            "EnvironmentVariables": spec.environment,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": _THROTTLE_S,
            "ProcessType": "Background",
            "Umask": 0o077,
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }
    ).decode()
    # The declaration must come first.
    head, _, rest = document.partition("\n")
    return f"{head}\n{with_digest_line(rest, '<!-- ', ' -->')}"


def plan_install(spec: ServiceSpec) -> list[UnitFile]:
    """Return what installing would write; raises InvalidState for a file it must not touch."""
    return [plan_unit_file(file(), rendered(spec))]


def plan_uninstall() -> list[UnitFile]:
    """Return what uninstalling would remove."""
    return [plan_unit_file(file(), None)]


def waiting() -> str:
    """Return why nothing takes effect now, and when it will."""
    return "There is no session of launchd here: the service takes effect at your next login."


def program() -> str:
    """Return the program that the installed agent starts; empty if it is unclear."""
    import plistlib

    try:
        return str(plistlib.loads(config_file.read(file()).data or b"")["ProgramArguments"][0])
    except (InvalidState, ValueError, LookupError, TypeError):
        return ""


def installed() -> bool:
    """Return whether there is an agent of ours."""
    return file().exists()


def summary(changes: list[UnitFile]) -> list[str]:
    """Return the lines of a new agent that are specific to this installation."""
    import plistlib

    lines = []
    for each in changes:
        plist = plistlib.loads(each.after or plistlib.dumps({}))
        lines += [f"{key}: {plist[key]}" for key in ("ProgramArguments", "EnvironmentVariables")]
    return lines


def enable() -> None:
    """Load the agent, which starts it; without a session launchd does that at the next login."""
    if runs():
        manager.run("launchctl", "enable", _target())
        start()


def forget() -> None:
    """Do nothing: launchd does not remember an unloaded agent."""


def _loaded() -> bool:
    return manager.succeeds("launchctl", "print", _target())


def start() -> None:
    """Load the agent, or start a loaded one; raises InvalidState when that fails."""
    process.log_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _loaded():
        manager.run_checked("launchctl", "kickstart", _target())
    else:
        manager.run_checked("launchctl", "bootstrap", _domain(), str(file()))


def stop() -> None:
    """Unload the agent until the next login or start, and wait until it is gone."""
    if not _loaded():
        return
    manager.run_checked("launchctl", "bootout", _target())
    deadline = time.monotonic() + END_S
    while _loaded() and time.monotonic() < deadline:
        time.sleep(PAUSE_S)


# launchd keeps nothing about an unloaded agent.
disable = stop_before_change = stop


def restart() -> None:
    """Restart the agent; raises InvalidState when that fails."""
    stop()
    start()


def state() -> ServiceState:
    """Return the state of the agent."""
    seen = manager.run("launchctl", "print", _target())
    lines = [line.partition("=") for line in seen.stdout.splitlines()]
    condition = next((value.strip() for key, _, value in lines if key.strip() == "state"), "")
    return ServiceState(
        kind=KIND,
        manager=runs(),
        installed=installed(),
        files=[str(file())] if installed() else [],
        enabled=installed(),
        active=condition == "running",
        condition=condition,
        log=str(process.log_file()),
    )


def lingering() -> bool | None:
    """Return None: a user's launchd agents end at logout, and no setting changes that."""
    return None


def linger() -> None:
    """Raise InvalidState: launchd has no lingering for agents."""
    raise InvalidState("launchd ends a user's agents at logout; there is no lingering.")
