"""systemd: write, start and stop the user units of fleetd for one installation.

Without a running manager (a container, a login over ssh that created no session) everything but
starting works: systemd reads the same files and links at the next login.
"""

import os
import pwd
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fleetd.protocol.errors import InvalidState, Storage

from ..integrations import config_file
from . import manager
from .manager import ServiceState, UnitFile, plan_unit_file, with_digest_line
from .spec import ServiceSpec

SERVICE, SOCKET = "fleetd.service", "fleetd.socket"
SYNCED = "fleetd-synced.conf"
_UNITS = Path(__file__).with_name("units")
_DEFAULT_SOCKET = "%t/fleet/fleetd.sock"


def rendered(spec: ServiceSpec) -> dict[str, str]:
    """Return the text of each unit for an installation."""
    listen = _DEFAULT_SOCKET if spec.socket is None else _literal(str(spec.socket))
    runtime = str(Path(listen).parent)
    directories = [word(str(each)) for each in spec.writable]
    program = "+/usr/bin/env mkdir -p -m 0700"
    service = replaced(
        source(SERVICE),
        {
            "ExecStart": [" ".join(map(argument, spec.command))],
            "Environment": [word(f"{name}={value}") for name, value in spec.environment.items()],
            "ExecStartPre": [" ".join([program, *map(argument, map(str, spec.writable))])],
            "ReadWritePaths": [
                f"-{each}" for each in (_quoted(runtime, literal=spec.socket is None), *directories)
            ],
        },
    )
    socket = replaced(source(SOCKET), {"ListenStream": [listen]})
    return {SERVICE: with_digest_line(service, "# "), SOCKET: with_digest_line(socket, "# ")}


def drop_in() -> str:
    """Return the text of the drop-in for a service whose store is on the network."""
    return with_digest_line(source(SYNCED, "[Service]"), "# ")


def source(name: str, begin: str = "[Unit]") -> str:
    """Return the text of a unit from its first section on; the text before is about the source."""
    text = (_UNITS / name).read_text("utf-8")
    return text[text.index(begin) :]


def replaced(text: str, settings: dict[str, list[str]]) -> str:
    """Return a unit's text with other values for each setting, in the place of its first one."""
    lines, left = [], dict(settings)
    for line in text.splitlines():
        key = line.partition("=")[0]
        if key not in settings:
            lines.append(line)
        else:
            lines += [f"{key}={value}" for value in left.pop(key, ())]
    if left:
        raise AssertionError(f"the unit has no {left.keys()}")
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """Return a text in which systemd expands no specifier."""
    return text.replace("%", "%%")


def word(text: str) -> str:
    """Return a text as one word, in which systemd expands no specifier."""
    return _quoted(_literal(text), literal=False)


def _quoted(text: str, *, literal: bool) -> str:
    if literal or not set(text) & set(" \t\"'\\;#"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def argument(text: str) -> str:
    """Return a text as one word of a command line, in which no variable is expanded."""
    return word(text.replace("$", "$$"))


KIND = "systemd"
TITLE = "systemd user service"
_USER = ("systemctl", "--user")
_WANTS = ("sockets.target.wants", SOCKET), ("default.target.wants", SERVICE)
_BOOTED = Path("/run/systemd/system")
_LINGER = Path("/var/lib/systemd/linger")
_SHOWN = "ActiveState,SubState,Result,NRestarts"


def is_here() -> bool:
    """Return whether this machine has systemd."""
    return shutil.which("systemctl") is not None


def runs() -> bool:
    """Return whether this user's manager answers."""
    return manager.succeeds(*_USER, "show-environment")


def waiting() -> str:
    """Return why nothing takes effect now, and when it will."""
    if _BOOTED.is_dir():
        return "No systemd of yours runs now: the service takes effect at your next login."
    return (
        "This machine was not started by systemd (a container?): the service takes effect at a "
        "login where it was."
    )


def program() -> str:
    """Return the program that the installed unit starts; empty if it is unclear."""
    try:
        unit = config_file.read(directory() / SERVICE).data or b""
        lines = unit.decode(errors="replace").splitlines()
        line = next(each for each in lines if each.startswith("ExecStart="))
        return shlex.split(line.partition("=")[2].replace("%%", "%"))[0]
    except (InvalidState, ValueError, IndexError, StopIteration):
        return ""


def directory() -> Path:
    """Return the directory of the user's own units."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".config") / "systemd/user"


def plan_install(spec: ServiceSpec) -> list[UnitFile]:
    """Return what installing would write; raises InvalidState for files it must not touch."""
    units = [plan_unit_file(directory() / name, text) for name, text in rendered(spec).items()]
    return [*units, *_networked(drop_in() if spec.networked else None)]


def plan_uninstall() -> list[UnitFile]:
    """Return what uninstalling would remove; the user's own drop-ins stay."""
    units = [plan_unit_file(directory() / name, None) for name in (SERVICE, SOCKET)]
    return [*units, *_networked(None)]


def _networked(text: str | None) -> list[UnitFile]:
    """Return the change, if any, of the drop-in that lets the service use the network."""
    path = directory() / f"{SERVICE}.d" / SYNCED
    return [plan_unit_file(path, text)] if text is not None or path.exists() else []


def installed() -> bool:
    """Return whether units of ours exist."""
    return (directory() / SERVICE).exists()


def summary(changes: list[UnitFile]) -> list[str]:
    """Return the lines of new units that are specific to this installation."""
    prefixes = ("ListenStream=", "ExecStart=", "Environment=", "ReadWritePaths=", "RestrictAddress")
    lines = [line for each in changes for line in (each.after or b"").decode().splitlines()]
    return [line for line in lines if line.startswith(prefixes)]


def stop_before_change() -> None:
    """Stop the running units before they are changed: an open socket keeps its path."""
    if runs():
        manager.run(*_USER, "stop", SOCKET, SERVICE)


def enable() -> None:
    """Create the socket at every login and, if the manager runs, now."""
    if runs():
        manager.run_checked(*_USER, "daemon-reload")
        manager.run_checked(*_USER, "enable", SOCKET)
        start_listening()
        return
    # Do what "systemctl --user enable" does: that command needs the manager.
    folder, name = _WANTS[0]
    link = directory() / folder / name
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(directory() / name)
    except OSError as error:
        raise Storage(f"{link} cannot be made: {error.strerror}.") from error


def start_listening() -> None:
    """Start the socket, even one that systemd gave up after too many failures."""
    manager.run(*_USER, "reset-failed", SOCKET, SERVICE)
    manager.run_checked(*_USER, "start", SOCKET)


def disable() -> None:
    """Stop the units and let nothing start them again."""
    if runs():
        manager.run(*_USER, "disable", "--now", SOCKET, SERVICE)
    for folder, name in _WANTS:
        link = directory() / folder / name
        with suppress(OSError):
            if link.is_symlink():
                link.unlink()
            link.parent.rmdir()


def forget() -> None:
    """Make the manager notice that the files are gone."""
    with suppress(OSError):
        (directory() / f"{SERVICE}.d").rmdir()  # unless something of the user's is in it
    if runs():
        manager.run(*_USER, "daemon-reload")
        manager.run(*_USER, "reset-failed", SOCKET, SERVICE)


def start() -> None:
    """Start socket and service; raises InvalidState when that fails."""
    start_listening()
    manager.run_checked(*_USER, "start", SERVICE)


def stop() -> None:
    """Stop socket and service, until the next login or start."""
    manager.run_checked(*_USER, "stop", SOCKET, SERVICE)


def restart() -> None:
    """Restart the service; its clients wait at the socket meanwhile."""
    start_listening()
    manager.run_checked(*_USER, "restart", SERVICE)


def state() -> ServiceState:
    """Return the state of the units."""
    running = runs()
    units = [directory() / name for name in (SERVICE, SOCKET)]
    service, socket = (
        manager.properties(*_USER, "show", unit, f"--property={_SHOWN}") if running else {}
        for unit in (SERVICE, SOCKET)
    )
    return ServiceState(
        kind=KIND,
        manager=running,
        installed=installed(),
        files=[str(each) for each in units if each.exists()],
        enabled=any((directory() / folder / name).is_symlink() for folder, name in _WANTS),
        active=service.get("ActiveState") in ("active", "activating", "deactivating"),
        listening=socket.get("ActiveState") == "active",
        condition=condition(service),
        lingering=lingering(),
        log=" ".join(log_command()),
    )


def condition(seen: Mapping[str, str]) -> str:
    """Return what systemd reports about a unit, in a few words."""
    if not seen:
        return ""
    text = f"{seen.get('ActiveState', 'unknown')} ({seen.get('SubState', 'unknown')})"
    if (result := seen.get("Result", "success")) != "success":
        text += f", {result}"
    if (restarts := seen.get("NRestarts", "0")) not in ("0", ""):
        text += f", restarts: {restarts}"
    return text


def log_command() -> list[str]:
    """Return the command that shows the log.

    It selects by unit and not with ``--user``: a journal that is kept only in memory has no parts
    for single users.
    """
    return ["journalctl", "--quiet", f"--user-unit={SERVICE}"]


def lingering() -> bool | None:
    """Return whether the user's services outlive the last logout; None if unknown."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    if (_LINGER / user).exists():
        return True
    seen = manager.properties("loginctl", "show-user", user, "--property=Linger")
    if "Linger" in seen:
        return seen["Linger"] == "yes"
    return False if _LINGER.is_dir() else None


def linger() -> None:
    """Let the user's services outlive logouts; raises InvalidState where that is not allowed."""
    manager.run_checked("loginctl", "enable-linger")
