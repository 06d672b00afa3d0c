"""The systemd user unit of ``fleetctl notify run``: written, started, removed.

It is off until somebody installs it. There is no such unit for launchd.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetd.protocol.errors import InvalidState, Storage

from ..args import Namespace
from ..integrations import config_file
from ..notify import ledger
from ..notify import options as notify_options
from ..notify.options import NotifyOptions
from ..output import console
from ..prompts import Cancelled, confirm
from . import manager, systemd
from .install import InstallReport
from .manager import ServiceState, UnitFile, plan_unit_file, with_digest_line
from .spec import ServiceSpec, this_spec

UNIT = "fleet-notify.service"
TITLE = "systemd user service of notifications"
_USER = ("systemctl", "--user")
_SHOWN = "ActiveState,SubState,Result,NRestarts"


def rendered(spec: ServiceSpec) -> str:
    """Return the text of the unit for an installation."""
    environment = dict(spec.environment)
    environment["PATH"] = f"{Path.home()}/.local/bin:{environment['PATH']}"
    if spec.socket is not None:
        environment["FLEET_SOCKET"] = str(spec.socket)
    words = (*spec.command[:-1], "fleetctl", "notify", "run")
    text = systemd.replaced(
        systemd.source(UNIT),
        {
            "ExecStart": [" ".join(map(systemd.argument, words))],
            "Environment": [systemd.word(f"{name}={value}") for name, value in environment.items()],
        },
    )
    return with_digest_line(text, "# ", by="notify")


def path() -> Path:
    """Return where the unit lies."""
    return systemd.directory() / UNIT


def _link() -> Path:
    return systemd.directory() / "default.target.wants" / UNIT


def state() -> ServiceState:
    """Return how the unit stands."""
    here = systemd.is_here()
    seen = manager.properties(*_USER, "show", UNIT, f"--property={_SHOWN}") if here else {}
    files = [path(), notify_options.options_path()]
    return ServiceState(
        kind=systemd.KIND,
        manager=bool(seen),
        installed=path().exists(),
        files=[str(each) for each in files if each.exists()],
        enabled=_link().is_symlink(),
        active=seen.get("ActiveState") in ("active", "activating"),
        condition=systemd.condition(seen),
        log=f"journalctl --quiet --user-unit={UNIT}",
    )


def install(args: Namespace, options: NotifyOptions) -> InstallReport:
    """Write the options and the unit, and start it.

    Raises Cancelled and InvalidParams from the question, InvalidState without systemd.
    """
    if not systemd.is_here():
        raise InvalidState(
            "This machine has no systemd, so notifications cannot run as a service.",
            hint="Start fleetctl notify run with your session.",
        )
    unit = plan_unit_file(path(), rendered(this_spec()))
    file = notify_options.options_path()
    report = InstallReport([], {"files": [str(unit.path), str(file)], "changed": not args.dry_run})
    stream = sys.stderr if args.json else sys.stdout
    for line in _shown(unit, options, whole=args.dry_run):
        print(console.clean(line), file=stream)
    if args.dry_run:
        report.said.append("[DRY RUN] Nothing was written.")
        return report
    if not args.yes and not confirm("Install this?"):
        raise Cancelled("Nothing was changed.")
    notify_options.write(options)
    report.said.append(f"Wrote {file}")
    if unit.changes:
        kept = unit.carry_out()
        report.said.append(f"Wrote {unit.path}")
        if kept:
            report.said.append(f"It had been edited; as it was: {kept}. Drop-ins are left alone.")
    _enable(report)
    return report


def _shown(unit: UnitFile, options: NotifyOptions, *, whole: bool) -> Iterator[str]:
    yield f"This sends {', '.join(options.reasons)}: to {', '.join(options.described())}"
    if unit.changes and (whole or unit.file.data is not None):
        yield from unit.diff()
    elif unit.changes:
        yield f"new: {unit.path}"
    yield f"{notify_options.options_path()} gets the options; nobody else may read it."


def _enable(report: InstallReport) -> None:
    if systemd.runs():
        manager.run_checked(*_USER, "daemon-reload")
        manager.run_checked(*_USER, "enable", UNIT)
        manager.run(*_USER, "reset-failed", UNIT)
        manager.run_checked(*_USER, "restart", UNIT)
        report.said.append("Notifications are on.")
        return
    link = _link()
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(path())
    except OSError as error:
        raise Storage(f"{link} cannot be made: {error.strerror}.") from error
    report.said.append(
        "systemd does not run here, so the service does not start. It starts at a login under "
        "systemd."
    )
    report.said.append("Until then, run: fleetctl notify run")


class NotifyRemoval:
    """What goes with the notifications: the unit, the options, and what was told."""

    def __init__(self) -> None:
        unit = plan_unit_file(path(), None)
        self._units = [unit] if unit.changes else []
        self.files = [each.path for each in self._units]
        if (file := notify_options.options_path()).exists():
            self.files.append(file)
        self._ledgers = [*ledger.directory().glob("*.json")]

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.files or self._ledgers)

    def shown(self) -> list[str]:
        """Return the files that go."""
        return [str(each) for each in [*self.files, *self._ledgers]]

    def carry_out(self) -> list[str]:
        """Stop the unit and remove the files; return what was done."""
        said = []
        if self._units and systemd.runs():
            manager.run(*_USER, "disable", "--now", UNIT)
        with suppress(OSError):
            if _link().is_symlink():
                _link().unlink()
            _link().parent.rmdir()
        for each in self._units:
            kept = each.carry_out()
            said.append(f"Removed {each.path}")
            if kept:
                said.append(f"It had been edited; as it was: {kept}")
        if self._units and systemd.runs():
            manager.run(*_USER, "daemon-reload")
            manager.run(*_USER, "reset-failed", UNIT)
        if notify_options.options_path() in self.files:
            notify_options.write(None)
            said.append(f"Removed {notify_options.options_path()}")
        for file in self._ledgers:
            config_file.write(config_file.read(file), None)
        with suppress(OSError):
            ledger.directory().rmdir()
        return said


def uninstall(args: Namespace) -> InstallReport:
    """Stop the unit, and remove it with its options; raises Cancelled from the question."""
    removal = NotifyRemoval()
    told: dict[str, Any] = {"files": removal.shown(), "changed": bool(removal) and not args.dry_run}
    report = InstallReport([], told)
    if not removal:
        report.said.append("Notifications are not installed.")
        return report
    stream = sys.stderr if args.json else sys.stdout
    print("This stops notifications, and removes:", file=stream)
    for each in removal.shown():
        print(console.clean(f"  {each}"), file=stream)
    if args.dry_run:
        report.said.append("[DRY RUN] Nothing was removed.")
        return report
    if not args.yes and not confirm("Remove this?"):
        raise Cancelled("Nothing was changed.")
    report.said.extend(removal.carry_out() or ["Removed what was told."])
    return report
